// The cases that every communicator must pass, under mpirun.
#include "parallel/mpi/mpi_communicator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/framework/comm/communicator_cases.h"
#include "tests/framework/comm/stream_cases.h"
#include "tests/framework/module/random_moves.h"
#include "tests/testing/mpi_main.h"

namespace delink::mpi_communicator_test {
namespace {

using ::testing::Combine;
using ::testing::TestWithParam;
using ::testing::Values;
using ::testing::ValuesIn;

// (the largest number of elements an MPI call may carry, case)
using Param = std::tuple<int64_t, testing::CommunicatorCase>;

class MpiCommunicatorTest : public TestWithParam<Param> {};

std::string ParamName(const ::testing::TestParamInfo<Param>& info) {
  const auto& [largest, test_case] = info.param;
  return "Cut" + std::to_string(largest) + "_" + test_case.name;
}

std::unique_ptr<Communicator> CutAt(int64_t largest) {
  auto& world = dynamic_cast<MpiCommunicator&>(testing::TestWorld().comm());
  return world.Duplicate(largest).value();
}

TEST_P(MpiCommunicatorTest, DoesWhatAllDo) {
  const auto& [largest, test_case] = GetParam();
  const auto comm = CutAt(largest);
  EXPECT_EQ(test_case.check(*comm), absl::OkStatus());
}

INSTANTIATE_TEST_SUITE_P(All, MpiCommunicatorTest,
                         Combine(Values(int64_t{100},
                                        MpiCommunicator::kLargest),
                                 ValuesIn(testing::kCommunicatorCases)),
                         ParamName);

// Pieces of any size, all of a rank's at a time.
TEST(MpiStreamsTest, Exchange) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  for (const int64_t largest : {int64_t{100}, MpiCommunicator::kLargest}) {
    const auto comm = CutAt(largest);
    EXPECT_EQ(testing::CheckStreamRing(*device, *comm), absl::OkStatus());
    EXPECT_EQ(testing::CheckAllToAllV(*device, *comm), absl::OkStatus());
  }
}

TEST(MpiLaunchTest, RanksOfOneMachine) {
  World& world = testing::TestWorld();
  EXPECT_GT(world.size(), 1);
  EXPECT_EQ(world.local_size(), world.size());
  EXPECT_EQ(world.local_rank(), world.rank());
  EXPECT_EQ(BroadcastString(world.comm(), world.host(), 0).value(),
            world.host());
}

// Two threads of a rank, each with a communicator of its own, as the compute
// and the network lane have.
TEST(MpiCommunicatorTest, TwoCommunicatorsFromTwoThreads) {
  const auto one = CutAt(MpiCommunicator::kLargest);
  const auto other = CutAt(MpiCommunicator::kLargest);
  const auto add = [](Communicator& comm, int64_t value) {
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(AllReduceScalar(comm, value + i, ReduceOp::kSum).value(),
                comm.size() * (value + i));
    }
  };
  std::thread lane([&] { add(*other, 1000); });
  add(*one, 5);
  lane.join();
}

TEST(MpiCommunicatorTest, SendWaitsForNobodyToPost) {
  Communicator& comm = testing::TestWorld().comm();
  const int peer = comm.rank() ^ 1;
  if (peer < comm.size()) {
    // More than any eager limit: both ranks post before either receives.
    const std::vector<float> sent(1 << 20, static_cast<float>(comm.rank()));
    std::vector<float> got(sent.size(), -1);
    const int64_t count = static_cast<int64_t>(sent.size());
    auto send = comm.Send(sent.data(), count, DType::kF32, peer, 0);
    auto recv = comm.Recv(got.data(), count, DType::kF32, peer, 0);
    absl::Status status = recv->Wait();
    status.Update(send->Wait());
    EXPECT_EQ(status, absl::OkStatus());
    EXPECT_EQ(got, std::vector<float>(sent.size(), static_cast<float>(peer)));
  }
}

// What is sent and received in one order on all ranks arrives, whatever the
// layouts; also values of more than an eager limit.
TEST(MpiCommunicatorTest, ValuesMoveBetweenLayouts) {
  Communicator& comm = testing::TestWorld().comm();
  testing::Dice dice(static_cast<uint64_t>(comm.size()));
  for (int trial = 0; trial < 50; ++trial) {
    SCOPED_TRACE(trial);
    const testing::RandomMoves moves(dice, comm.size());
    testing::TestSource source = moves.SourceOf(comm.rank());
    testing::TestSink sink = moves.SinkOf(comm.rank());
    EXPECT_EQ(moves.Go(source, sink, comm), absl::OkStatus());
    moves.Check(sink);
  }
  ParamRegistry registry;
  Scope(registry).Layer(0, "").Param("a", {.shape = {700, 1000}});
  const Layout layout = Layout::Create(
      registry, 0, {}, {.mesh = {.data = comm.size()}, .zero = 1});
  const LogicalTensor& tensor = layout.tensors()[0];
  const Move move{.field = {}, .from = &tensor, .to = {&tensor}};
  testing::TestSource source(layout, comm.rank(), {.sharded = true});
  testing::TestSink sink(layout, comm.rank(), {});
  EXPECT_EQ(MoveValues(source, sink, {&move, 1}, comm, 40000),
            absl::OkStatus());
  sink.Check(tensor,
             [](int64_t number) { return testing::ValueOf("a", number); });
}

}  // namespace
}  // namespace delink::mpi_communicator_test
