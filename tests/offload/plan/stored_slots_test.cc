// What goes to the host between forward and backward of programs with a slab
// a layer, written out, and how much room that leaves on the device.
#include "offload/plan/stored_slots.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "framework/step/plan/basic.h"
#include "framework/step/program/dependencies.h"
#include "framework/step/proof/validator.h"

namespace delink::stored_slots_test {
namespace {

constexpr BasicPlanOptions kLayerMajor{.order = MicroBatchOrder::kLayerMajor};

ProgramShape Blocks(int32_t blocks, int32_t micro_batches) {
  ProgramShape shape{.layers = blocks + 2,
                     .slabs = blocks + 2,
                     .micro_batches = micro_batches};
  for (int32_t layer = 0; layer < shape.layers; ++layer) {
    shape.slabs_of_layer.push_back({layer});
    shape.gathers.push_back(false);
  }
  return shape;
}

StoreOptions All(const ProgramShape& shape) {
  return {.layers = std::vector<bool>(shape.layers, true)};
}

// With that; the validator finds nothing.
Program With(const Program& bare, const StoreOptions& options) {
  Program program = AddStores(bare, options);
  const absl::Status status = ValidateProgram(program);
  EXPECT_TRUE(status.ok()) << status;
  return program;
}

// Visits, and what goes and comes.
std::string Text(const Program& program) {
  std::string text;
  for (const Instruction& i : program.instructions) {
    if (i.layer < 0) continue;
    text += (text.empty() ? "" : " ") + ToString(i);
  }
  return text;
}

// Of blocks: how many there is room for on the device, and on the host.
int32_t OnDevice(const Program& program) {
  return AnalyzeProgram(program).slots[1];
}
int32_t OnHost(const Program& program) {
  return AnalyzeProgram(program).stored[1];
}

TEST(StoredSlots, NothingIsAddedWhereAllStays) {
  const ProgramShape shape = Blocks(6, 2);
  const Program bare = PlanStep(shape, {});
  EXPECT_EQ(AddStores(bare, {}), bare);
  EXPECT_EQ(AddStores(bare, {.layers = std::vector<bool>(8, false)}), bare);
  const Program evaluation = PlanEvaluation(shape);
  EXPECT_EQ(AddStores(evaluation, All(shape)), evaluation);
}

// Two are at work at a time, and one comes or goes: what is wanted first again
// stays.
TEST(StoredSlots, MicroBatchMajor) {
  const ProgramShape shape = Blocks(5, 1);
  const Program program = With(PlanStep(shape, {}), All(shape));
  EXPECT_EQ(Text(program),
            "F(0,a) F(1,a) F(2,a) Store(1,a) F(3,a) Store(2,a) F(4,a) F(5,a) "
            "Loss(a) B(5,a) B(4,a) Load(2,a) B(3,a) Load(1,a) B(2,a) B(1,a) "
            "B(0,a)");
  EXPECT_EQ(OnDevice(program), 3);
  EXPECT_EQ(OnHost(program), 2);
}

TEST(StoredSlots, LayerMajor) {
  const ProgramShape shape = Blocks(3, 2);
  const Program program = With(PlanStep(shape, kLayerMajor), All(shape));
  EXPECT_EQ(Text(program),
            "F(0,a) F(0,b) F(1,a) F(1,b) Store(1,b) F(2,a) Store(1,a) F(2,b) "
            "F(3,a) F(3,b) Loss(a) Loss(b) B(3,a) B(3,b) B(2,a) Load(1,a) "
            "B(2,b) Load(1,b) B(1,a) B(1,b) B(0,a) B(0,b)");
  EXPECT_EQ(OnDevice(program), 4);
  EXPECT_EQ(OnHost(program), 2);
}

// However many blocks there are.
TEST(StoredSlots, RoomOnTheDeviceDoesNotGrowWithDepth) {
  for (const int32_t micro_batches : {1, 2, 3, 5, 8}) {
    for (const int32_t blocks : {4, 7, 12, 30}) {
      const ProgramShape shape = Blocks(blocks, micro_batches);
      const Program some = With(PlanStep(shape, {}), All(shape));
      EXPECT_EQ(OnDevice(some), 3) << blocks << " blocks";
      EXPECT_EQ(OnHost(some), blocks - 3) << blocks << " blocks";
      const Program all = With(PlanStep(shape, kLayerMajor), All(shape));
      EXPECT_EQ(OnDevice(all), micro_batches + 2) << blocks << " blocks";
      EXPECT_EQ(OnHost(all), (blocks - 1) * micro_batches - 2)
          << blocks << " blocks";
    }
  }
}

// There is room for those, and the others are as many as before.
TEST(StoredSlots, LayersThatStay) {
  const ProgramShape shape = Blocks(8, 2);
  StoreOptions options = All(shape);
  for (const int32_t layer : {2, 4, 6, 8}) options.layers[layer] = false;
  const Program program = With(PlanStep(shape, {}), options);
  for (const Instruction& i : program.instructions) {
    EXPECT_TRUE(i.op != Op::kStoreSlot || i.layer % 2 == 1) << ToString(i);
  }
  EXPECT_EQ(OnDevice(program), 6);
  EXPECT_EQ(OnHost(program), 2);
}

// More room, fewer that go.
TEST(StoredSlots, RoomBeside) {
  const ProgramShape shape = Blocks(6, 1);
  StoreOptions options = All(shape);
  for (const int32_t beside : {0, 1, 2, 3, 4}) {
    options.beside = beside;
    const Program program = With(PlanStep(shape, {}), options);
    EXPECT_EQ(OnDevice(program), 2 + beside);
    EXPECT_EQ(OnHost(program), 4 - beside);
  }
}

// Copies of planes come and go beside them.
TEST(StoredSlots, BesideCopies) {
  ProgramShape shape = Blocks(5, 1);
  shape.copy_class[0] = {-1, 0, 0, 0, 0, 0, -1};
  shape.copies = {2};
  const Planner planner =
      WithResidency(WithStores(BasicPlanner({}), All(shape)));
  const Program program = planner(PassKind::kGradients, shape, 0);
  EXPECT_TRUE(ValidateProgram(program).ok());
  EXPECT_EQ(ToString(program),
            "F(0,a) Fetch(1) F(1,a) Fetch(2) F(2,a) Store(1,a) Release(1) "
            "Fetch(3) F(3,a) Store(2,a) Release(2) Fetch(4) F(4,a) Release(3) "
            "Fetch(5) F(5,a) Loss(a) Reduce(6) Squares(6) "
            "B(5,a) Release(5) Reduce(5) Squares(5) "
            "B(4,a) Release(4) Reduce(4) Squares(4) "
            "Load(2,a) Fetch(3) B(3,a) Release(3) Reduce(3) Squares(3) "
            "Load(1,a) Fetch(2) B(2,a) Release(2) Reduce(2) Squares(2) "
            "Fetch(1) B(1,a) Release(1) Reduce(1) Squares(1) "
            "B(0,a) Reduce(0) Squares(0) Norm");
}

}  // namespace
}  // namespace delink::stored_slots_test
