// Moves between random layouts: what is wanted arrives, once and right, and
// nothing crosses ranks that need not.
#include "framework/module/mover.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "tests/framework/comm/counting_communicator.h"
#include "tests/framework/module/loopback.h"
#include "tests/framework/module/move_fixture.h"
#include "tests/framework/module/random_moves.h"

namespace delink::mover_test {
namespace {

using testing::CountingCommunicator;
using testing::Dice;
using testing::Loopback;
using testing::MoveTest;
using testing::RandomMoves;
using testing::TestSink;
using testing::TestSource;
using testing::Transfers;
using testing::ValueOf;

// All ranks in this thread; the bytes that crossed.
int64_t RunInOneThread(const RandomMoves& moves) {
  Transfers transfers;
  std::map<std::pair<int, int>, size_t> received;
  int64_t crossed = 0;
  // Whether all had been sent that was to arrive.
  const auto run = [&](int rank) {
    Loopback loopback(transfers, rank, moves.ranks());
    CountingCommunicator comm(loopback);
    TestSource source = moves.SourceOf(rank);
    TestSink sink = moves.SinkOf(rank);
    EXPECT_EQ(moves.Go(source, sink, comm), absl::OkStatus());
    crossed += comm.sent();
    if (!loopback.complete()) return false;
    moves.Check(sink);
    for (int peer = 0; peer < moves.ranks(); ++peer) {
      received[{peer, rank}] = loopback.received(peer);
    }
    return true;
  };
  std::vector<int> again;
  for (int rank = 0; rank < moves.ranks(); ++rank) {
    if (!run(rank)) again.push_back(rank);
  }
  const int64_t once = crossed;
  for (const int rank : again) EXPECT_TRUE(run(rank));
  for (const auto& [ranks, sent] : transfers) {
    EXPECT_EQ(sent.size(), received[ranks]);
  }
  return once;
}

class RandomMovesTest : public ::testing::TestWithParam<int> {};

// 10 parts of 1000 pairs.
TEST_P(RandomMovesTest, WhatIsWantedArrives) {
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
INSTANTIATE_TEST_SUITE_P(Seeds, RandomMovesTest, ::testing::Range(0, 10));

TEST_F(MoveTest, WhereNothingCrossesEachHasItsOwnOutcome) {
  const Layout layout = LayoutOf(1);
  const std::vector<Move> moves = MovesOf(layout);
  for (int rank = 0; rank < kRanks; ++rank) {
    Transfers transfers;
    Loopback loopback(transfers, rank, kRanks);
    CountingCommunicator comm(loopback);
    TestSource source(layout, rank, {});
    TestSink sink(layout, rank, {.sharded = true});
    const bool bad = rank == 1;
    if (bad) source.Fail(absl::DataLossError("disk on fire"));
    EXPECT_EQ(MoveValues(source, sink, moves, comm),
              bad ? absl::DataLossError("disk on fire") : absl::OkStatus());
    EXPECT_EQ(comm.calls(), 0);
    if (!bad) Check(layout, sink);
  }
}

TEST_F(MoveTest, SinksMayCopyWhatStaysHere) {
  const Layout layout = LayoutOf(0);
  std::vector<Move> moves = MovesOf(layout);
  SelfCommunicator unused;
  TestSource source(layout, 0, {});
  TestSink copies(layout, 0, {.copies = true});
  EXPECT_EQ(MoveValues(source, copies, moves, unused), absl::OkStatus());
  Check(layout, copies);
  EXPECT_EQ(copies.written(), 0);
  EXPECT_GT(copies.copied(), 0);
  // A change is made on the host.
  moves[1].change = [](std::span<double> values, int64_t) {
    for (double& value : values) value = -value;
  };
  TestSink both(layout, 0, {.copies = true});
  EXPECT_EQ(MoveValues(source, both, moves, unused), absl::OkStatus());
  EXPECT_GT(both.written(), 0);
  EXPECT_GT(both.copied(), 0);
}

using MoveDeathTest = MoveTest;

TEST_F(MoveDeathTest, NamesWhatIsNowhere) {
  struct Nowhere final : TestSource {
    using TestSource::TestSource;
    Descriptor Has(const Field&, const LogicalTensor&) const override {
      return {};
    }
    Descriptor Owners(const Field&, const LogicalTensor&) const override {
      return {};
    }
  };
  const Layout layout = LayoutOf(0);
  const std::vector<Move> moves = MovesOf(layout);
  SelfCommunicator self;
  Nowhere source(layout, 0, {});
  TestSink sink(layout, 0, {});
  EXPECT_DEATH(static_cast<void>(MoveValues(source, sink, moves, self)),
               "a: the sink wants what the source has nowhere");
}

// A tensor of more than two pieces of the usual size, all of one rank.
TEST_F(MoveTest, PiecesAreOfTheSizeThatIsTold) {
  ParamRegistry registry;
  Scope(registry).Layer(0, "").Param("a", {.shape = {1100, 2000}});
  const Layout layout = Layout::Create(
      registry, 0, {},
      {.mesh = {.data = 2}, .zero = 1, .whole_tensors = WholeTensors::kAll});
  const LogicalTensor& tensor = layout.tensors()[0];
  const Move move{
      .field = {Field::Kind::kState, "m"}, .from = &tensor, .to = {&tensor}};
  for (const int64_t grain : {1, 256}) {
    const auto rank_main = [&](Communicator& comm) -> absl::Status {
      TestSource source(layout, comm.rank(), {.sharded = true});
      TestSink sink(layout, comm.rank(), {.grain = grain});
      DELINK_RETURN_IF_ERROR(MoveValues(source, sink, {&move, 1}, comm));
      sink.Check(tensor, [](int64_t number) { return ValueOf("a", number); });
      EXPECT_EQ(sink.greatest(),
                grain > 1 ? kMovePiece : kMovePiece / 2000 * 2000);
      return absl::OkStatus();
    };
    EXPECT_EQ(RunRanks(2, rank_main), absl::OkStatus());
  }
}

}  // namespace
}  // namespace delink::mover_test
