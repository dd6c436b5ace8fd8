// Thousands of random pipelines: what their planners write is right, and what
// is derived of it safe, judged by a simulator of all their stages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "framework/step/plan/assemble.h"
#include "framework/step/program/dependencies.h"
#include "framework/step/proof/joint_plan.h"
#include "framework/step/proof/validator.h"
#include "parallel/pipeline/interleaved.h"
#include "parallel/pipeline/one_f_one_b.h"
#include "parallel/pipeline/zero_bubble.h"
#include "tests/framework/step/programs.h"
#include "tests/framework/step/simulator.h"

namespace delink::pipeline_property_test {
namespace {

using step_test::Dice;
using step_test::DrawPipeline;
using step_test::PipelineOrder;
using step_test::PlanPipeline;
using step_test::Sample;
using step_test::Simulate;
using step_test::WithCopies;
using step_test::WithSomeStored;

std::vector<Analysis> AnalyzeAll(const std::vector<Program>& stages) {
  std::vector<Analysis> analyses;
  for (const Program& program : stages) {
    analyses.push_back(AnalyzeProgram(program));
  }
  return analyses;
}

TEST(PipelinePropertyTest, PlannedPipelinesAreValidAndSafe) {
  Dice dice(11);
  int sharded = 0;
  for (int n = 0; n < 1000; ++n) {
    Sample sample = DrawPipeline(dice);
    sample.shape.reduces_parts = n % 3 == 0;
    if (dice.Coin()) step_test::DrawCopies(dice, &sample);
    sharded += sample.shape.shards.empty() ? 0 : 1;
    for (const PassKind kind :
         {PassKind::kStep, PassKind::kGradients, PassKind::kEvaluation,
          PassKind::kProbe, PassKind::kDiagnosis}) {
      if (kind != PassKind::kStep && dice.Below(4) != 0) continue;
      std::vector<Program> stages = PlanPipeline(
          sample, kind,
          static_cast<PipelineOrder>(dice.Below(step_test::kPipelineOrders)));
      for (Program& program : stages) program = WithCopies(program, dice);
      const absl::Status status = ValidateStages(stages);
      ASSERT_TRUE(status.ok()) << sample.text << ": " << status.message();
      ASSERT_EQ(Simulate(stages, AnalyzeAll(stages), dice), "")
          << sample.text << ", " << ToString(kind);
    }
  }
  EXPECT_GT(sharded, 100);
}

// The simulator sees what it is there to see.
bool IsCaught(const std::vector<Program>& stages,
              const std::vector<Analysis>& analyses, Dice& dice) {
  for (int attempt = 0; attempt < 200; ++attempt) {
    if (!Simulate(stages, analyses, dice).empty()) return true;
  }
  return false;
}

// What other ranks do keeps many instructions apart by itself, so that no
// simulation misses a dependency on them: not that of what is sent on what
// makes it, or of what uses what comes on its coming.
bool IsOfContent(const Instruction& waits, const Instruction& for_this) {
  return (waits.op == Op::kSend && for_this.op != Op::kRecv) ||
         (for_this.op == Op::kRecv && waits.op != Op::kSend &&
          waits.op != Op::kRecv);
}

// Whatever waits for a slot that goes waits for this rank alone. What is sent
// to the next stage is none of them, and takes no more than without.
TEST(PipelinePropertyTest, StoredSlotsAreValidAndSafe) {
  Dice dice(18);
  int stored = 0;
  for (int n = 0; n < 600; ++n) {
    const Sample sample = DrawPipeline(dice);
    const PassKind kind =
        dice.Below(4) > 0 ? PassKind::kStep : PassKind::kProbe;
    std::vector<Program> stages = PlanPipeline(
        sample, kind,
        static_cast<PipelineOrder>(dice.Below(step_test::kPipelineOrders)));
    for (Program& program : stages) {
      const size_t before = program.instructions.size();
      const int32_t leaving = AnalyzeProgram(program).slots.back();
      program = WithSomeStored(program, dice);
      stored += program.instructions.size() > before ? 1 : 0;
      ASSERT_EQ(AnalyzeProgram(program).slots.back(), leaving)
          << sample.text << ": inputs that leave";
    }
    const absl::Status status = ValidateStages(stages);
    ASSERT_TRUE(status.ok()) << sample.text << ": " << status.message();
    ASSERT_EQ(Simulate(stages, AnalyzeAll(stages), dice), "") << sample.text;
  }
  EXPECT_GT(stored, 300);
}

TEST(PipelinePropertyTest, SimulatorCatchesWrongAnalyses) {
  Dice dice(12);
  int slots = 0, boundaries = 0;
  for (int n = 0; n < 100; ++n) {
    // Of one chunk a stage: where they come round, other ranks keep more apart.
    Sample sample = DrawPipeline(dice);
    while (sample.shape.chunk_of_layer.back() >= sample.shape.stages) {
      sample = DrawPipeline(dice);
    }
    const std::vector<Program> stages =
        PlanPipeline(sample, PassKind::kStep, PipelineOrder::kForwardsFirst);
    const std::vector<Analysis> analyses = AnalyzeAll(stages);
    const int32_t stage = dice.Below(sample.shape.stages);
    const std::vector<Instruction>& list = stages[stage].instructions;
    std::vector<Analysis> wrong = analyses;
    Analysis& of = wrong[stage];
    std::vector<std::pair<size_t, size_t>> candidates;
    for (size_t i = 0; i < list.size(); ++i) {
      for (size_t k = 0; k < of.dependencies[i].size(); ++k) {
        const Dependency& d = of.dependencies[i][k];
        if (!d.previous_step && IsOfContent(list[i], list[d.instruction])) {
          candidates.emplace_back(i, k);
        }
      }
    }
    const auto [i, k] =
        candidates[dice.Below(static_cast<int32_t>(candidates.size()))];
    of.dependencies[i].erase(of.dependencies[i].begin() +
                             static_cast<int64_t>(k));
    EXPECT_TRUE(IsCaught(stages, wrong, dice))
        << sample.text << ", stage " << stage << ": " << ToString(list[i]);

    // Two inputs that leave, or two gradients, in one place.
    of = analyses[stage];
    if (of.slots.back() > 1) {
      ++slots;
      for (int32_t l = 0; l < sample.shape.layers; ++l) {
        if (of.pool_of[l] + 1 != static_cast<int32_t>(of.slots.size())) {
          continue;
        }
        for (int32_t& slot : of.slot_of[l]) slot = slot == 1 ? 0 : slot;
      }
      EXPECT_TRUE(IsCaught(stages, wrong, dice)) << sample.text;
    }
    of = analyses[stage];
    if (of.boundaries > 1) {
      ++boundaries;
      for (std::vector<int32_t>& of_chunk : of.boundary_of) {
        for (int32_t& boundary : of_chunk) {
          boundary = boundary == 1 ? 0 : boundary;
        }
      }
      EXPECT_TRUE(IsCaught(stages, wrong, dice)) << sample.text;
    }
  }
  EXPECT_GT(slots, 30);
  EXPECT_GT(boundaries, 30);
}

// As many layers a chunk as even as can be, slabs of their own.
ProgramShape EvenShape(int32_t layers, int32_t chunks, int32_t stages,
                       int32_t micro_batches, int32_t ranks) {
  ProgramShape shape{.layers = layers,
                     .slabs = 3 * layers,
                     .gathers = std::vector<bool>(3 * layers, true),
                     .micro_batches = micro_batches,
                     .ranks = ranks,
                     .stages = stages};
  for (int32_t l = 0; l < layers; ++l) {
    shape.slabs_of_layer.push_back({3 * l, 3 * l + 1, 3 * l + 2});
    shape.chunk_of_layer.push_back(l * chunks / layers);
  }
  return shape;
}

// One slab of each layer is that of so many layers, far from each other.
ProgramShape Shared(ProgramShape shape, int32_t sharers) {
  const int32_t unlike = (shape.layers + sharers - 1) / sharers;
  shape.slabs = 2 * shape.layers + unlike;
  shape.gathers.resize(shape.slabs);
  for (int32_t l = 0; l < shape.layers; ++l) {
    shape.slabs_of_layer[l] = {2 * l, 2 * l + 1, 2 * shape.layers + l % unlike};
  }
  return shape;
}

// Fewer micro-batches than stages, too. Every stage has as many under way as
// the first one with whole backwards has.
TEST(PipelinePropertyTest, ZeroBubblePipelinesEnd) {
  Dice dice(14);
  for (int32_t stages = 2; stages <= 8; ++stages) {
    for (int32_t micro_batches = 1; micro_batches <= 16; ++micro_batches) {
      const ProgramShape shape =
          Shared(EvenShape(3 * stages, stages, stages, micro_batches, 2),
                 dice.Between(1, 4));
      const auto plan = JointPlan::Create(PlannerOf(ZeroBubble, dice.Coin()),
                                          shape, std::vector{PassKind::kStep});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      const std::vector<Program>& step = plan->Of(PassKind::kStep);
      const std::vector<Analysis> analyses = AnalyzeAll(step);
      for (int32_t stage = 0; stage < stages; ++stage) {
        const Analysis& a = analyses[stage];
        const bool inner = stage > 0 && stage + 1 < stages;
        // One more comes early.
        EXPECT_LE(a.slots[1],
                  (inner ? 3 : 2) * std::min(stages, micro_batches) + 1);
        EXPECT_EQ(a.held[1],
                  stage == 0
                      ? 0
                      : (inner ? 3 : 2) * std::min(stage + 1, micro_batches));
        EXPECT_LE(a.boundaries, 3);
      }
      if (3 * stages * micro_batches > 64) continue;
      EXPECT_EQ(Simulate(step, analyses, dice), "");
    }
  }
}

// Where what is sent were given back at once, these would wait for ever.
TEST(PipelinePropertyTest, InterleavedPipelinesEnd) {
  Dice dice(13);
  for (const int32_t stages : {2, 3, 4, 8}) {
    for (const int32_t turns : {1, 2, 3}) {
      for (const int32_t groups : {1, 2, 4}) {
        const int32_t chunks = stages * turns;
        const ProgramShape shape =
            Shared(EvenShape(chunks, chunks, stages, stages * groups, 2),
                   dice.Between(1, 4));
        const auto plan = JointPlan::Create(
            PlannerOf(Interleaved, false), shape,
            std::vector{PassKind::kStep, PassKind::kEvaluation,
                        PassKind::kProbe});
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        for (const PassKind kind : {PassKind::kStep, PassKind::kProbe}) {
          const std::vector<Program>& programs = plan->Of(kind);
          const std::vector<Analysis> analyses = AnalyzeAll(programs);
          for (const Analysis& analysis : analyses) {
            EXPECT_LE(analysis.slots.back(), 2) << "inputs that leave";
            EXPECT_LE(analysis.boundaries, 3);
          }
          if (chunks * shape.micro_batches > 64) continue;
          EXPECT_EQ(Simulate(programs, analyses, dice), "");
        }
      }
    }
  }
}

// The most that this process has had, in MiB.
int64_t PeakMebibytes() {
  std::ifstream in("/proc/self/status");
  int64_t kibibytes = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmHWM:")) kibibytes = std::stoll(line.substr(6));
  }
  return kibibytes / 1024;
}

struct Large {
  const char* name;
  std::vector<Unit> (*schedule)(const ProgramShape&, int32_t);
  int32_t layers, chunks, sharers;
  int32_t tensor = 1;
};

// Visits exchange as those of a block do: rows come together before cut
// products, and parts of sums behind them.
ProgramShape WithTensor(ProgramShape shape, int32_t tensor) {
  if (tensor == 1) return shape;
  shape.tensor = tensor;
  for (int32_t slab = 0; slab < shape.slabs; ++slab) {
    shape.slab_cuts.push_back({.pieces = slab % 3 == 0 ? 1 : tensor});
  }
  using Kind = VisitExchange::Kind;
  const std::vector<VisitExchange> exchanges = {
      {Axis::kTensor, Kind::kGather, 1 << 20},
      {Axis::kTensor, Kind::kScatter, 1 << 20},
      {Axis::kTensor, Kind::kGather, 1 << 20},
      {Axis::kTensor, Kind::kScatter, 1 << 20}};
  VisitExchanges of_layer;
  of_layer.fill(exchanges);
  shape.exchanges.assign(shape.layers, of_layer);
  return shape;
}

TEST(PipelinePropertyTest, LargePlansAreProvedInSeconds) {
  for (const Large& large : {Large{"1f1b", OneFOneB, 96, 16, 1},
                             Large{"zero-bubble", ZeroBubble, 96, 16, 1},
                             Large{"interleaved", Interleaved, 96, 96, 1},
                             Large{"interleaved", Interleaved, 4000, 96, 4},
                             Large{"1f1b", OneFOneB, 96, 16, 1, 8},
                             Large{"interleaved", Interleaved, 96, 96, 1, 8}}) {
    const std::clock_t begin = std::clock();
    const auto plan = JointPlan::Create(
        PlannerOf(large.schedule, true),
        WithTensor(Shared(EvenShape(large.layers, large.chunks, 16, 64, 32),
                          large.sharers),
                   large.tensor),
        std::vector{PassKind::kStep, PassKind::kGradients,
                    PassKind::kEvaluation, PassKind::kProbe,
                    PassKind::kDiagnosis});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->ranks(), 512);
    EXPECT_EQ(plan->Digest().size(), 64u);
    const double seconds =
        static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    size_t instructions = 0;
    for (const Program& program : plan->Of(PassKind::kStep)) {
      instructions += program.instructions.size();
    }
    const int64_t mebibytes = PeakMebibytes();
    std::printf(
        "512 ranks (tensor %d), %d layers, 64 micro-batches, %s with %d "
        "chunks, slabs of %d layers: %zu "
        "instructions a step on 16 stages, planned and proved in %.2f s and "
        "%lld MiB\n",
        large.tensor, large.layers, large.name, large.chunks, large.sharers,
        instructions, seconds, static_cast<long long>(mebibytes));
    EXPECT_LT(seconds, 10);
    EXPECT_LT(mebibytes, 2048);
  }
}

}  // namespace
}  // namespace delink::pipeline_property_test
