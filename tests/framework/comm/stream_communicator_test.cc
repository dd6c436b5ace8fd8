// What is exchanged of a device's memory, by ranks that share a device. Built
// twice: with the CUDA device of this build, skipped where there is no GPU, and
// with the emulated one.
#include "framework/comm/stream_communicator.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "framework/comm/thread_communicator.h"
#include "framework/tensor/buffer.h"
#include "tests/framework/comm/stream_cases.h"

namespace delink {
namespace {

class StreamCommunicatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Device>> device = NewCudaDevice(0);
    if (absl::IsUnavailable(device.status())) {
      GTEST_SKIP() << std::string(device.status().message());
    }
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }
  std::unique_ptr<Device> device_;
};

TEST_F(StreamCommunicatorTest, DoesWhatCommunicatorsDo) {
  for (const int ranks : {1, 3}) {
    EXPECT_EQ(RunRanks(ranks,
                       [&](Communicator& comm) {
                         return testing::CheckStreamCases(*device_, comm);
                       }),
              absl::OkStatus());
  }
}

TEST_F(StreamCommunicatorTest, NeighboursSendAndReceive) {
  for (const int ranks : {2, 3}) {
    EXPECT_EQ(RunRanks(ranks,
                       [&](Communicator& comm) {
                         return testing::CheckStreamRing(*device_, comm);
                       }),
              absl::OkStatus());
  }
}

TEST_F(StreamCommunicatorTest, AllExchangeUnevenParts) {
  for (const int ranks : {1, 2, 4}) {
    EXPECT_EQ(RunRanks(ranks,
                       [&](Communicator& comm) {
                         return testing::CheckAllToAllV(*device_, comm);
                       }),
              absl::OkStatus());
  }
}

using StreamCommunicatorDeathTest = StreamCommunicatorTest;
TEST_F(StreamCommunicatorDeathTest, HasOneOperationUnderWay) {
  const auto two = [&] {
    (void)RunRanks(2, [&](Communicator& comm) {
      const auto stream = device_->NewStream();
      const auto on_stream = StageThroughHost(*device_, *stream, comm);
      const Buffer x = *Buffer::Allocate(*device_, 64);
      const auto one = on_stream->AllGather(x.data(), 8, DType::kF32);
      const auto other = on_stream->AllGather(x.data(), 8, DType::kF32);
      return absl::OkStatus();
    });
  };
  EXPECT_DEATH(two(), "one operation of a stream at a time");
}

}  // namespace
}  // namespace delink
