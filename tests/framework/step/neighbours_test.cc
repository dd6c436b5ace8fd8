// What two stages with two chunks each send each other, in all four lanes at a
// time.
#include "framework/step/groups/neighbours.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "framework/comm/chain.h"
#include "framework/comm/thread_communicator.h"
#include "framework/step/program/shape_table.h"

namespace delink::neighbours_test {
namespace {

constexpr int kElements = 3;

// What goes between layer - 1 and `layer` in a column.
float Content(const Instruction& at, int column) {
  const int of = (at.flags & kOfGradient) != 0 ? 1 : 0;
  return static_cast<float>(100 * column + 10 * at.layer + of);
}

struct Exchanged {
  Instruction at;
  std::array<float, kElements> values = {};
};

// Of this stage between layer - 1, which is its or the other's, and `layer`:
// the input and, the other way, its gradient.
void Add(const ProgramShape& shape, int32_t stage, int32_t layer, int column,
         std::vector<Exchanged>& all) {
  for (const uint8_t flags : {uint8_t{0}, uint8_t{kOfGradient}}) {
    const bool comes = StageOf(shape, layer) == stage;
    const bool receives = comes == (flags == 0);
    Exchanged one{.at = {.op = receives ? Op::kRecv : Op::kSend,
                         .flags = flags,
                         .layer = layer,
                         .micro_batch = 0}};
    one.at.lane = ShapeTable(shape).LaneOf(one.at);
    if (!receives) one.values.fill(Content(one.at, column));
    all.push_back(one);
  }
}

// Both ranks of a column begin in the same order, or one the other way round.
TEST(NeighboursTest, FourLanesExchangeAtATimeInAnyOrder) {
  const Mesh mesh{.data = 2, .pipeline = 2};
  const ProgramShape shape{.layers = 4,
                           .slabs_of_layer = {{}, {}, {}, {}},
                           .chunk_of_layer = {0, 1, 2, 3},
                           .stages = 2};
  const absl::Status status = RunRanks(4, [&](Communicator& world) {
    const std::unique_ptr<Device> device = NewCpuDevice();
    auto neighbours = Neighbours::Create(mesh, *device, world);
    if (!neighbours.ok()) return neighbours.status();
    const MeshPlace place = mesh.PlaceOf(world.rank());
    const int stage = place[Axis::kPipeline], column = place[Axis::kData];
    for (const bool first_back : {false, true}) {
      for (const bool second_back : {false, true}) {
        // One operation in each lane, then another two.
        for (const std::vector<int32_t>& layers :
             {std::vector<int32_t>{1, 2}, std::vector<int32_t>{3}}) {
          std::vector<Exchanged> all;
          for (const int32_t layer : layers) {
            Add(shape, stage, layer, column, all);
          }
          if (stage == 0 ? first_back : second_back) {
            std::reverse(all.begin(), all.end());
          }
          std::vector<std::unique_ptr<Pending>> posted;
          for (Exchanged& one : all) {
            posted.push_back((*neighbours)
                                 ->Exchange(shape, one.at,
                                            Tensor(one.values.data(),
                                                   DType::kF32, {kElements})));
          }
          const std::unique_ptr<Pending> pending = All(std::move(posted));
          if (pending != nullptr) {
            if (absl::Status s = pending->Wait(); !s.ok()) return s;
          }
          for (const Exchanged& one : all) {
            for (const float value : one.values) {
              EXPECT_EQ(value, Content(one.at, column)) << ToString(one.at);
            }
          }
        }
      }
    }
    (*neighbours)->Synchronize();
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace delink::neighbours_test
