// Programs for tests: written as text, and drawn at random.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "framework/step/plan/basic.h"
#include "framework/step/program/instruction.h"

namespace delink::step_test {

// The inverse of ToString(Program), of stage 0, for single-letter
// micro-batches: "F(0,a) Loss(a) B(0,a)r Norm Fetch(1)". Reductions and fetches
// go to the network lane, transfers to theirs, the rest to the compute lane;
// visits are forward-only where the kind has no backward. Aborts on what it
// cannot read.
Program Parse(const ProgramShape& shape, const std::string& text,
              PassKind kind = PassKind::kStep);

// Numbers that are the same on every machine.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  // [0, n)
  int32_t Below(int32_t n) {
    return static_cast<int32_t>(engine_() % static_cast<uint64_t>(n));
  }
  int32_t Between(int32_t low, int32_t high) {
    return low + Below(high - low + 1);
  }
  bool Coin() { return Below(2) == 0; }

 private:
  std::mt19937_64 engine_;
};

struct Sample {
  ProgramShape shape;
  BasicPlanOptions options;
  std::string text;  // for failure messages
};

// Writes programs of one stage whose backwards are in two halves, the second
// ones `behind` micro-batches behind the first.
Planner HalvesPlanner(bool recompute, int32_t behind);

// 3..12 layers; blocks of 1..3 parts, each shared by all, groups, cycle or
// none; tied or not; slots as models have them or of any class; 1..8
// micro-batches; both orders; recompute or not; weights
// gathered by all, none or some slabs; 1..512 ranks, mostly few.
Sample DrawSample(Dice& dice);

// Keeps some of a sample's planes on the host, or weights in shards, with room
// for a few copies more than one instruction needs. Some slabs are the host's
// to update, or late. Weights that several stages use are never sharded.
void DrawCopies(Dice& dice, Sample* sample);

// A sample with such planes.
Sample DrawWithCopies(Dice& dice);

// The same program with copies (offload/plan/residency.h), of which any goes
// where room is wanted.
Program WithCopies(const Program& program, Dice& dice);

// The same program of which slots of some blocks go to the host
// (offload/plan/stored_slots.h), any of them where room is wanted.
Program WithSomeStored(const Program& program, Dice& dice);

// A sample that is cut into 2..8 stages of one chunk or, where there are so
// many layers and micro-batches are then a multiple of stages, of two; as many
// layers each as the dice say.
Sample DrawPipeline(Dice& dice);

// Makes the ranks of a sample's stages, of which there are at most `most` in
// all, work on the same visits, along one axis or both: slabs are cut into any
// pieces, and visits exchange anything or nothing.
void DrawVisitGroups(Dice& dice, int32_t most, Sample* sample);

// Of stages with two chunks the first and the last are kInterleaved, which of
// one chunk is k1F1B.
enum class PipelineOrder {
  k1F1B,
  kForwardsFirst,
  kOneByOne,
  kZeroBubble,
  kInterleaved
};
inline constexpr int32_t kPipelineOrders = 5;

// The programs of its stages.
std::vector<Program> PlanPipeline(const Sample& sample, PassKind kind,
                                  PipelineOrder order);

// The same program with every instruction in a lane drawn at random.
Program ScatterLanes(const Program& program, Dice& dice);

}  // namespace delink::step_test
