// Moves between random layouts: what is wanted arrives, once and right, and
// nothing crosses ranks that need not.
#include "framework/module/mover.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "tests/framework/comm/counting_communicator.h"
#include "tests/framework/module/loopback.h"
#include "tests/framework/module/mover_ends.h"

namespace delink {
namespace {

using testing::CountingCommunicator;
using testing::Dice;
using testing::EndOptions;
using testing::Loopback;
using testing::RandomMoves;
using testing::TestSink;
using testing::TestSource;
using testing::Transfers;
using testing::ValueOf;

// All ranks in this thread; the bytes that crossed.
int64_t RunInOneThread(const RandomMoves& moves) {
  Transfers transfers;
  std::vector<int> again;
  int64_t crossed = 0;
  // Whether all arrived that was sent to the rank.
  const auto run = [&](int rank) {
    Loopback loopback(transfers, rank, moves.ranks());
    CountingCommunicator comm(loopback);
    TestSource source = moves.SourceOf(rank);
    TestSink sink = moves.SinkOf(rank);
    EXPECT_EQ(moves.Go(source, sink, comm), absl::OkStatus());
    crossed += comm.sent();
    if (!loopback.complete()) return false;
    moves.Check(sink);
    for (int peer = 0; peer < rank; ++peer) {
      EXPECT_EQ(transfers[std::pair(peer, rank)].size(),
                loopback.received(peer));
    }
    return true;
  };
  for (int rank = 0; rank < moves.ranks(); ++rank) {
    if (!run(rank)) again.push_back(rank);
  }
  const int64_t once = crossed;
  for (const int rank : again) EXPECT_TRUE(run(rank));
  return once;
}

class MoverTest : public ::testing::TestWithParam<int> {};

// 10 parts of 1000 pairs.
TEST_P(MoverTest, WhatIsWantedArrives) {
  Dice dice(static_cast<uint64_t>(GetParam()));
  int64_t bytes = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    SCOPED_TRACE(trial);
    const RandomMoves moves(dice, 8);
    const int64_t crossed = RunInOneThread(moves);
    ASSERT_EQ(crossed, moves.LeastToCross());
    ASSERT_FALSE(HasFailure());
    bytes += crossed;
  }
  EXPECT_GT(bytes, 0);
}
INSTANTIATE_TEST_SUITE_P(Seeds, MoverTest, ::testing::Range(0, 10));

}  // namespace
}  // namespace delink
