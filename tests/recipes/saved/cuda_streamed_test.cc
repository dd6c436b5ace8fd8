// Weights that come to a CUDA device while it is at work, whatever the order in
// which its streams do what they may do in any.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/recipes/run/stream_orders.h"
#include "tests/recipes/saved/streamed_model.h"

namespace delink::testing::cuda_streamed_test {
namespace {

class CudaStreamedTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const absl::Status status = HaveCuda();
    if (!status.ok()) GTEST_SKIP() << std::string(status.message());
  }
  static std::vector<double> All(const StreamedOptions& options) {
    const std::unique_ptr<Device> device = *NewCudaDevice(0);
    return (*StreamedModel::Create(*device, options))->All(/*tokens=*/4);
  }
};
INSTANTIATE_TEST_SUITE_P(Homes, CudaStreamedTest,
                         ::testing::Values("all", "blocks"));

TEST_P(CudaStreamedTest, HaveTheBitsOfThoseOnTheDevice) {
  for (const bool tied : {false, true}) {
    StreamedOptions options{.llama = !tied, .tied = tied};
    const std::vector<double> resident = All(options);
    options.homes = HomesOf(GetParam());
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      SCOPED_TRACE(seed);
      InOrder(seed, [&] { EXPECT_EQ(All(options), resident); });
    }
  }
}

}  // namespace
}  // namespace delink::testing::cuda_streamed_test
