#include "tests/framework/optim/narrow_gradients.h"

namespace delink::testing::narrow_gradients_test {
namespace {

TEST(NarrowGradients, UpdateAsTheSameNumbersInF32) {
  ExpectNarrowAsWide(*NewCpuDevice());
}

TEST(NarrowGradients, TakeTwoBytesEach) {
  const auto device = NewCpuDevice();
  ParamRegistry registry;
  DeclareToy(registry, 2, 37);
  const auto bytes = [&](bool narrow) {
    return MakeStore(*device, registry, 2, {}, 0,
                     {.dtype = DType::kBF16, .bf16_gradients = narrow})
        ->bytes(Plane::kGradient);
  };
  EXPECT_EQ(2 * bytes(true), bytes(false));
}

}  // namespace
}  // namespace delink::testing::narrow_gradients_test
