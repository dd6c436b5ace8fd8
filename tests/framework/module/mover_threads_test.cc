// Moves whose ranks are threads, which wait for each other only where they
// must, and what becomes of them when one fails.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/comm/thread_communicator.h"
#include "tests/framework/comm/counting_communicator.h"
#include "tests/framework/module/move_fixture.h"
#include "tests/framework/module/random_moves.h"

namespace delink::mover_threads_test {
namespace {

using testing::CountingCommunicator;
using testing::Dice;
using testing::MoveTest;
using testing::RandomMoves;
using testing::TestSink;
using testing::TestSource;

TEST(MoverThreadsTest, WhatIsWantedArrives) {
  Dice dice(200);
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(trial);
    const RandomMoves moves(dice, 8);
    const int64_t least = moves.LeastToCross();
    const auto rank_main = [&](Communicator& ranks) -> absl::Status {
      CountingCommunicator comm(ranks);
      TestSource source = moves.SourceOf(comm.rank());
      TestSink sink = moves.SinkOf(comm.rank());
      DELINK_RETURN_IF_ERROR(moves.Go(source, sink, comm));
      moves.Check(sink);
      EXPECT_TRUE(least > 0 || comm.calls() == 0);
      DELINK_ASSIGN_OR_RETURN(
          const int64_t crossed,
          AllReduceScalar(ranks, comm.sent(), ReduceOp::kSum));
      EXPECT_EQ(crossed, least);
      return absl::OkStatus();
    };
    ASSERT_EQ(RunRanks(moves.ranks(), rank_main), absl::OkStatus());
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
}

// Neither ends of a rank nor those of all can make others wait for ever, and
// the communicator serves on.
TEST_F(MoveTest, AllLearnWhatFailedOnOne) {
  const Layout layout = LayoutOf(1);
  const std::vector<Move> moves = MovesOf(layout);
  const auto rank_main = [&](Communicator& comm) -> absl::Status {
    for (const bool reads : {true, false}) {
      for (const int bad : {0, 2}) {
        TestSource source(layout, comm.rank(), {.sharded = true});
        TestSink sink(layout, comm.rank(), {});
        const absl::Status error = absl::DataLossError("disk on fire");
        if (comm.rank() >= bad && reads) source.Fail(error);
        if (comm.rank() >= bad && !reads) sink.Fail(error);
        const absl::Status status = MoveValues(source, sink, moves, comm, 1000);
        EXPECT_EQ(status, absl::DataLossError(
                              absl::StrCat("rank ", bad, ": disk on fire")));
      }
    }
    TestSource source(layout, comm.rank(), {.sharded = true});
    TestSink sink(layout, comm.rank(), {});
    DELINK_RETURN_IF_ERROR(MoveValues(source, sink, moves, comm, 1000));
    Check(layout, sink);
    return absl::OkStatus();
  };
  EXPECT_EQ(RunRanks(kRanks, rank_main), absl::OkStatus());
}

// What was posted has been waited for, or its Pending would say so.
TEST_F(MoveTest, ARankThatIsGoneEndsIt) {
  const Layout layout = LayoutOf(1);
  const std::vector<Move> moves = MovesOf(layout);
  const auto rank_main = [&](Communicator& comm) -> absl::Status {
    if (comm.rank() == 1) return absl::AbortedError("gone");
    TestSource source(layout, comm.rank(), {.sharded = true});
    TestSink sink(layout, comm.rank(), {});
    const absl::Status status = MoveValues(source, sink, moves, comm, 300);
    EXPECT_FALSE(status.ok());
    return status;
  };
  EXPECT_EQ(RunRanks(kRanks, rank_main), absl::AbortedError("rank 1: gone"));
}

}  // namespace
}  // namespace delink::mover_threads_test
