// What only ranks that are threads promise: the order of sums, real asynchrony,
// and that nobody waits for ever.
#include "framework/comm/thread_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/status_macros.h"

namespace delink::thread_communicator_test {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST(ThreadCommunicatorTest, PostingDoesNotWait) {
  std::atomic<bool> posted = false;
  const absl::Status status = RunRanks(2, [&](Communicator& comm) {
    int64_t value = comm.rank() + 1;
    if (comm.rank() == 1) {
      // Rank 0 must get past its posting, and see it unfinished, without us.
      while (!posted) std::this_thread::yield();
    }
    const auto pending = comm.AllReduce(&value, 1, DType::kI64, ReduceOp::kSum);
    if (comm.rank() == 0) {
      EXPECT_FALSE(pending->Test().value());
      posted = true;
    }
    DELINK_RETURN_IF_ERROR(pending->Wait());
    EXPECT_EQ(value, 3);
    return absl::OkStatus();
  });
  EXPECT_EQ(status, absl::OkStatus());
}

TEST(ThreadCommunicatorTest, NamesWhoPostedWhatWhenCollectivesDiffer) {
  for (int what = 0; what < 4; ++what) {
    std::atomic<int> told = 0;
    const absl::Status status = RunRanks(4, [&](Communicator& comm) {
      DELINK_RETURN_IF_ERROR(Barrier(comm));
      std::vector<double> x(8, 1.0);
      const bool odd = comm.rank() == 2;
      const int64_t count = odd && what == 0 ? 7 : 8;
      const DType dtype = odd && what == 1 ? DType::kF32 : DType::kF64;
      const ReduceOp op = odd && what == 2 ? ReduceOp::kMax : ReduceOp::kSum;
      const auto pending = odd && what == 3
                               ? comm.Broadcast(x.data(), 8, DType::kF64, 1)
                               : comm.AllReduce(x.data(), count, dtype, op);
      const absl::Status waited = pending->Wait();
      EXPECT_THAT(Message(waited), HasSubstr("collective 1 of 4 ranks"));
      EXPECT_THAT(Message(waited), HasSubstr("rank 2 posted"));
      EXPECT_EQ(pending->Test().status(), waited);
      told += waited.ok() ? 0 : 1;
      return waited;
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_EQ(told, 4);
    const char* const differs[] = {"7 x f64, sum", "8 x f32, sum",
                                   "8 x f64, max",
                                   "Broadcast(8 x f64, root 1)"};
    EXPECT_THAT(Message(status), HasSubstr(differs[what]));
  }
}

TEST(ThreadCommunicatorTest, NamesTransfersThatDiffer) {
  const absl::Status status = RunRanks(2, [&](Communicator& comm) {
    std::vector<float> x(8);
    return comm.rank() == 0 ? comm.Send(x.data(), 8, DType::kF32, 1, 4)->Wait()
                            : comm.Recv(x.data(), 6, DType::kF32, 0, 4)->Wait();
  });
  EXPECT_THAT(Message(status), HasSubstr("rank 0 to rank 1, tag 4"));
  EXPECT_THAT(Message(status), HasSubstr("6 x f32"));
  EXPECT_THAT(Message(status), HasSubstr("8 x f32"));
}

TEST(ThreadCommunicatorTest, ARankThatFailsEndsTheWaitOfAll) {
  const absl::Status status = RunRanks(3, [](Communicator& comm) {
    DELINK_ASSIGN_OR_RETURN(const auto part, comm.Split(0, 0));
    if (comm.rank() == 2) return absl::DataLossError("shard 5 is damaged");
    const absl::Status waited = Barrier(*part);
    EXPECT_FALSE(waited.ok());
    return waited;
  });
  EXPECT_EQ(status, absl::DataLossError("rank 2: shard 5 is damaged"));
}

TEST(ThreadCommunicatorTest, ARankThatLeavesIsMissed) {
  const absl::Status status = RunRanks(3, [](Communicator& comm) {
    DELINK_RETURN_IF_ERROR(Barrier(comm));
    return comm.rank() == 1 ? absl::OkStatus() : Barrier(comm);
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(Message(status), HasSubstr("rank 1 left after 1 collectives"));
}

TEST(ThreadCommunicatorTest, AnAbsentSenderIsMissed) {
  const absl::Status status = RunRanks(2, [](Communicator& comm) {
    float x = 0;
    if (comm.rank() == 1) return absl::OkStatus();
    return comm.Recv(&x, 1, DType::kF32, 1, 0)->Wait();
  });
  EXPECT_THAT(Message(status), HasSubstr("rank 1 left"));
}

TEST(ThreadCommunicatorTest, AbortReachesEveryRankEverywhere) {
  const absl::Status status = RunRanks(4, [](Communicator& comm) {
    DELINK_ASSIGN_OR_RETURN(const auto pair, comm.Split(comm.rank() / 2, 0));
    if (comm.rank() == 3) {
      comm.Abort(1, "the loss of step 7 is not finite");
      return absl::OkStatus();
    }
    absl::Status waited;
    while (waited.ok()) waited = Barrier(*pair);
    return waited;
  });
  EXPECT_EQ(status,
            absl::AbortedError("rank 3: the loss of step 7 is not finite"));
}

TEST(ThreadCommunicatorTest, TwoCommunicatorsFromTwoThreadsOfARank) {
  const absl::Status status = RunRanks(3, [](Communicator& comm) {
    DELINK_ASSIGN_OR_RETURN(const auto other, comm.Split(0, 0));
    const auto add = [](Communicator& c, int64_t value) {
      for (int i = 0; i < 50; ++i) {
        const auto sum = AllReduceScalar(c, value, ReduceOp::kSum);
        EXPECT_EQ(sum.value(), 3 * value);
      }
    };
    std::thread worker([&] { add(*other, 5); });
    add(comm, 7);
    worker.join();
    return absl::OkStatus();
  });
  EXPECT_EQ(status, absl::OkStatus());
}

TEST(ThreadCommunicatorDeathTest, DroppingAnOperationUnderWay) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto drop = [] {
    const absl::Status status = RunRanks(2, [](Communicator& comm) {
      int64_t x = 0;
      if (comm.rank() == 0) comm.AllReduce(&x, 1, DType::kI64, ReduceOp::kSum);
      return absl::OkStatus();
    });
  };
  EXPECT_DEATH(drop(), "Wait for it first");
}

TEST(ThreadCommunicatorDeathTest, WrongArguments) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto with = [](auto call) {
    return [call] { (void)RunRanks(1, call); };
  };
  EXPECT_DEATH(with([](Communicator& comm) {
                 return comm.Broadcast(nullptr, 1, DType::kF32, 1)->Wait();
               })(),
               "root 1 of 1 ranks");
  EXPECT_DEATH(with([](Communicator& comm) {
                 return comm.Send(nullptr, 1, DType::kF32, 0, 0)->Wait();
               })(),
               "peer 0 of rank 0");
  EXPECT_DEATH(
      with([](Communicator& comm) {
        uint8_t x = 0;
        return comm.AllReduce(&x, 1, DType::kU8, ReduceOp::kSum)->Wait();
      })(),
      "no reduction of this dtype");
  EXPECT_DEATH(
      with([](Communicator& comm) {
        uint16_t x = 0;
        return comm.AllReduce(&x, 1, DType::kBF16, ReduceOp::kSum)->Wait();
      })(),
      "no reduction of this dtype");
}

}  // namespace
}  // namespace delink::thread_communicator_test
