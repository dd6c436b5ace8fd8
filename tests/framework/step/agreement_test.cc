#include "framework/step/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/step/plan/basic.h"

namespace delink {
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

// What every rank is told when `damage` is done to the program of one; the same
// for all, or the test fails.
std::string TellsAll(int damaged, const std::function<void(Program*)>& damage) {
  std::string told[kRanks];
  const absl::Status status = RunRanks(kRanks, [&](Communicator& comm) {
    Program program = PlanStep(Shape(), {});
    if (comm.rank() == damaged) damage(&program);
    const absl::Status agreed = AgreeOnProgram(comm, program);
    told[comm.rank()] = std::string(agreed.message());
    EXPECT_EQ(agreed.ok(), told[comm.rank()].empty());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << std::string(status.message());
  for (const std::string& text : told) EXPECT_EQ(text, told[0]);
  return told[0];
}

TEST(AgreeOnProgram, EqualProgramsPass) {
  EXPECT_EQ(TellsAll(0, [](Program*) {}), "");
  SelfCommunicator self;
  ProgramShape alone = Shape();
  alone.ranks = 1;
  EXPECT_TRUE(AgreeOnProgram(self, PlanStep(alone, {})).ok());
}

// Each of the two is a valid program by itself.
TEST(AgreeOnProgram, NamesTheRankAndTheInstructionThatDiffers) {
  EXPECT_THAT(
      TellsAll(2,
               [](Program* p) { *p = PlanStep(Shape(), {.recompute = true}); }),
      AllOf(HasSubstr("rank 2: "),
            HasSubstr("instruction 1 is 'F(1,a)r in the compute lane"),
            HasSubstr("'F(1,a) in the compute lane")));
  EXPECT_THAT(
      TellsAll(1,
               [](Program* p) {
                 for (Instruction& i : p->instructions) {
                   if (i.op == Op::kFetch && i.slab == 2) i.lane = Lane::kIn;
                 }
               }),
      AllOf(HasSubstr("rank 1: "), HasSubstr("'Fetch(2) in the in lane"),
            HasSubstr("'Fetch(2) in the network lane")));
}

TEST(AgreeOnProgram, NamesAShapeThatDiffers) {
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

TEST(AgreeOnProgram, OneRanksInvalidProgramEndsAll) {
  EXPECT_THAT(TellsAll(2, [](Program* p) { p->instructions.pop_back(); }),
              AllOf(HasSubstr("rank 2: "), HasSubstr("Fetch(2)")));
  EXPECT_THAT(TellsAll(0, [](Program* p) { p->shape.ranks = 2; }),
              HasSubstr("made for 2 ranks, but there are 3"));
}

}  // namespace
}  // namespace delink
