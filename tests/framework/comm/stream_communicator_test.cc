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

namespace delink::stream_communicator_test {
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

// Not of the transport alone: what it stood for is over with it.
TEST_F(StreamCommunicatorTest, AnErrorIsToldByTheNextCallToo) {
  const absl::Status status = RunRanks(2, [&](Communicator& comm) {
    const auto stream = device_->NewStream();
    const auto on_stream = StageThroughHost(*device_, *stream, comm);
    const Buffer x = *Buffer::Allocate(*device_, 64);
    device_->FillZero(*stream, x.data(), 64);
    if (comm.rank() == 1) comm.Abort(1, "no more");
    absl::Status first;
    for (int call = 0; call < 2; ++call) {
      const auto gather = on_stream->AllGather(x.data(), 8, DType::kF32);
      const absl::Status told = gather->Wait();
      if (call == 0) first = told;
      EXPECT_EQ(told, first);
    }
    return first;
  });
  EXPECT_EQ(status, absl::AbortedError("rank 1: no more"));
}

// Copies from and to other memory make the host wait, and with it all lanes.
TEST_F(StreamCommunicatorTest, WhatIsExchangedGoesThroughPinnedMemory) {
  const auto exchanges = [&] {
    int64_t bytes = 0;
    for (const auto& entry : device_->ledgers().pinned.entries()) {
      if (entry.kind == "exchanges") bytes += entry.bytes;
    }
    return bytes;
  };
  EXPECT_EQ(RunRanks(1,
                     [&](Communicator& comm) {
                       const auto stream = device_->NewStream();
                       const auto on_stream =
                           StageThroughHost(*device_, *stream, comm);
                       const Buffer x = *Buffer::Allocate(*device_, 800);
                       device_->FillZero(*stream, x.data(), 800);
                       // It grows, and stays.
                       for (const int64_t count : {50, 100, 10}) {
                         const auto sum = on_stream->AllReduce(
                             x.data(), count, DType::kF64, ReduceOp::kSum);
                         EXPECT_TRUE(sum == nullptr || sum->Wait().ok());
                         EXPECT_EQ(exchanges(), count == 50 ? 400 : 800);
                       }
                       return absl::OkStatus();
                     }),
            absl::OkStatus());
  EXPECT_EQ(exchanges(), 0);
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
  // A forked process could not use a real GPU.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(two(), "one operation of a stream at a time");
}

}  // namespace
}  // namespace delink::stream_communicator_test
