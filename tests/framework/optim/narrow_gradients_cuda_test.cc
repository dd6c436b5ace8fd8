#include "tests/framework/optim/narrow_gradients.h"
#include "tests/framework/optim/optim_on_cuda.h"

namespace delink::testing::narrow_gradients_cuda_test {
namespace {

class NarrowGradientsCuda : public OptimOnCuda {};

TEST_F(NarrowGradientsCuda, UpdateAsTheSameNumbersInF32) {
  ExpectNarrowAsWide(*device_);
}

TEST_F(NarrowGradientsCuda, UpdateAsOnTheCpu) {
  ExpectTheBitsOfTheCpu(*device_);
}

}  // namespace
}  // namespace delink::testing::narrow_gradients_cuda_test
