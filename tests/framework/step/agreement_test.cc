#include "framework/step/proof/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/step/plan/assemble.h"
#include "framework/step/plan/basic.h"
#include "parallel/pipeline/one_f_one_b.h"

namespace delink::agreement_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanks = 3;

ProgramShape Shape() {
  return {.layers = 4,
          .slabs = 3,
          .slabs_of_layer = {{0}, {1}, {1}, {2}},
          .gathers = {true, true, true},
          .micro_batches = 2,
          .ranks = kRanks};
}

constexpr PassKind kKinds[] = {PassKind::kStep, PassKind::kEvaluation};

// With `damage` done to the programs of steps.
absl::StatusOr<JointPlan> Plan(const ProgramShape& shape,
                               const std::function<void(Program*)>& damage) {
  const auto planner = [&](PassKind kind, const ProgramShape& of,
                           int32_t stage) {
    Program program = of.stages > 1
                          ? PlannerOf(OneFOneB, false)(kind, of, stage)
                          : BasicPlanner({})(kind, of, stage);
    if (kind == PassKind::kStep) damage(&program);
    return program;
  };
  return JointPlan::Create(planner, shape, kKinds);
}

// What every rank is told when `damage` is done to the program of one; the same
// for all, or the test fails.
std::string TellsAll(int damaged, const std::function<void(Program*)>& damage) {
  std::string told[kRanks];
  const absl::Status status = RunRanks(kRanks, [&](Communicator& comm) {
    const absl::Status agreed =
        AgreeOnPlan(comm, Plan(Shape(), [&](Program* program) {
                      if (comm.rank() == damaged) damage(program);
                    }));
    told[comm.rank()] = std::string(agreed.message());
    EXPECT_EQ(agreed.ok(), told[comm.rank()].empty());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << std::string(status.message());
  for (const std::string& text : told) EXPECT_EQ(text, told[0]);
  return told[0];
}

TEST(AgreeOnPlan, EqualProgramsPass) {
  EXPECT_EQ(TellsAll(0, [](Program*) {}), "");
  SelfCommunicator self;
  ProgramShape alone = Shape();
  alone.ranks = 1;
  EXPECT_TRUE(AgreeOnPlan(self, Plan(alone, [](Program*) {})).ok());
}

// As what a stage takes is found out by one rank, before there are others:
// collectives move nothing.
class Imagining final : public SelfCommunicator {
 public:
  explicit Imagining(int rank) : rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return kRanks; }

 private:
  const int rank_;
};

TEST(AgreeOnPlan, ARankAgreesWithThoseThatItImagines) {
  for (int rank = 0; rank < kRanks; ++rank) {
    Imagining world(rank);
    EXPECT_EQ(AgreeOnPlan(world, Plan(Shape(), [](Program*) {})),
              absl::OkStatus());
  }
}

// Each of the two is a valid program by itself.
TEST(AgreeOnPlan, NamesTheRankAndTheInstructionThatDiffers) {
  EXPECT_THAT(
      TellsAll(2,
               [](Program* p) { *p = PlanStep(Shape(), {.recompute = true}); }),
      AllOf(HasSubstr("rank 2: the program of a step differs from rank 0's: "),
            HasSubstr("instruction 1 is 'F(1,a)r in the compute lane"),
            HasSubstr("'F(1,a) in the compute lane")));
  EXPECT_THAT(
      TellsAll(1,
               [](Program* p) {
                 for (Instruction& i : p->instructions) {
                   if (i.op == Op::kGather && i.slab == 2) i.lane = Lane::kIn;
                 }
               }),
      AllOf(HasSubstr("rank 1: "), HasSubstr("'Gather(2) in the in lane"),
            HasSubstr("'Gather(2) in the network lane")));
}

TEST(AgreeOnPlan, NamesAShapeThatDiffers) {
  EXPECT_THAT(
      TellsAll(1,
               [](Program* p) {
                 ProgramShape shape = Shape();
                 shape.micro_batches = 3;
                 *p = PlanStep(shape, {});
               }),
      AllOf(HasSubstr("rank 1: "), HasSubstr("its shape is '"),
            HasSubstr("micro-batches 3"), HasSubstr("micro-batches 2")));
}

// One missing, another size.
TEST(AgreeOnPlan, NamesAnExchangeThatDiffers) {
  using Kind = VisitExchange::Kind;
  ProgramShape shape = Shape();
  shape.tensor = kRanks;
  shape.exchanges.assign(shape.layers, {});
  auto& list = At(shape.exchanges[1], Phase::kBackward);
  list = {{Axis::kTensor, Kind::kGather, 64}, {Axis::kTensor, Kind::kSum, 8}};
  const std::vector<VisitExchange> all = list;
  const absl::Status status = RunRanks(kRanks, [&](Communicator& comm) {
    const auto told = [&](const std::vector<VisitExchange>& of_rank_1) {
      ProgramShape own = shape;
      if (comm.rank() == 1) At(own.exchanges[1], Phase::kBackward) = of_rank_1;
      return std::string(
          AgreeOnPlan(comm, Plan(own, [](Program*) {})).message());
    };
    EXPECT_EQ(told(all), "");
    EXPECT_THAT(
        told({all[0]}),
        HasSubstr("rank 1: what visits exchange differs from rank 0's: "
                  "'nothing' here and 'layer 1, backward: exchange 1 is "
                  "sum over tensor of 8 bytes' there; start all"));
    std::vector<VisitExchange> larger = all;
    larger[0].bytes = 72;
    EXPECT_THAT(
        told(larger),
        HasSubstr("'layer 1, backward: exchange 0 is gather over tensor "
                  "of 72 bytes' here and 'layer 1, backward: exchange 0 "
                  "is gather over tensor of 64 bytes' there"));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << std::string(status.message());
}

TEST(AgreeOnPlan, NamesAProgramThatOthersDoNotHave) {
  const absl::Status status = RunRanks(kRanks, [&](Communicator& comm) {
    std::vector<PassKind> kinds(std::begin(kKinds), std::end(kKinds));
    if (comm.rank() == 1) kinds.push_back(PassKind::kDiagnosis);
    const absl::Status agreed =
        AgreeOnPlan(comm, JointPlan::Create(BasicPlanner({}), Shape(), kinds));
    EXPECT_THAT(std::string(agreed.message()),
                HasSubstr("rank 1: has the program of a diagnosis where rank 0 "
                          "has no more programs; start all ranks"));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << std::string(status.message());
}

// Every rank proves the programs of all stages.
TEST(AgreeOnPlan, NamesTheStageWhoseProgramDiffers) {
  ProgramShape shape = Shape();
  shape.ranks = 1;
  shape.stages = kRanks;
  shape.chunk_of_layer = {0, 0, 1, 2};
  const absl::Status status = RunRanks(kRanks, [&](Communicator& comm) {
    const auto told = [&](const std::function<void(Program*)>& damage) {
      return std::string(AgreeOnPlan(comm, Plan(shape, damage)).message());
    };
    EXPECT_EQ(told([](Program*) {}), "");
    EXPECT_THAT(told([&](Program* p) {
                  if (comm.rank() == 1 && p->stage == 2) {
                    std::swap(p->instructions[0].lane, p->instructions[1].lane);
                  }
                }),
                AllOf(HasSubstr("rank 1: the program of a step of stage 2 "
                                "differs from rank 0's: instruction 0 is "),
                      HasSubstr("Recv(3,a)")));
    EXPECT_THAT(told([](Program* p) {
                  if (p->stage == 1) p->instructions.pop_back();
                }),
                HasSubstr("stage 1: instruction 2, F(2,a) of the next step: "));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << std::string(status.message());
}

TEST(AgreeOnPlan, OneRanksInvalidProgramEndsAll) {
  EXPECT_THAT(TellsAll(2, [](Program* p) { p->instructions.pop_back(); }),
              AllOf(HasSubstr("rank 2: "), HasSubstr("Gather(2)")));
  EXPECT_THAT(TellsAll(0, [](Program* p) { p->shape.ranks = 2; }),
              HasSubstr("made for 2 ranks, but there are 3"));
}

}  // namespace
}  // namespace delink::agreement_test
