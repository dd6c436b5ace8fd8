// A model that is larger than the emulated CUDA device.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/recipes/saved/streamed_model.h"
#include "tests/testing/simt/simt.h"

namespace delink::testing::cuda_small_device_test {
namespace {

TEST(CudaSmallDevice, StreamsAModelThatIsLarger) {
  StreamedOptions options{.llama = true, .dim = 96};
  const StreamedOptions resident = options;
  options.homes = HomesOf("all");
  int64_t planes = 0, own = 0, weights = 0;
  std::vector<double> all;
  {
    const std::unique_ptr<Device> device = *NewCudaDevice(0);
    const auto model = *StreamedModel::Create(*device, options);
    weights = model->store().bytes(Plane::kWeight, Tier::kHost);
    all = model->All(/*tokens=*/2);
    planes = device->ledgers().allocated.highest();
    own = device->ledgers().own.highest();
    EXPECT_LT(planes, weights * 3 / 4);
  }
  const simt::ScopedOptions small({.memory_bytes = own + planes + weights / 8});
  const std::unique_ptr<Device> device = *NewCudaDevice(0);
  {
    // Beside what kernels need.
    std::vector<std::unique_ptr<Stream>> streams;
    while (device->overhead() < own) {
      streams.push_back(device->NewStream());
      ASSERT_TRUE(streams.back()->Prepare().ok());
    }
    EXPECT_EQ(StreamedModel::Create(*device, resident).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
  device->Trim();
  const auto model = *StreamedModel::Create(*device, options);
  EXPECT_EQ(model->All(/*tokens=*/2), all);
}

}  // namespace
}  // namespace delink::testing::cuda_small_device_test
