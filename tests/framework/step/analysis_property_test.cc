// What AnalyzeProgram derives is right and no more than needed, for thousands
// of random programs, judged by a simulator and by brute force.
#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <string>
#include <utility>
#include <vector>

#include "framework/step/plan/basic.h"
#include "framework/step/program/dependencies.h"
#include "framework/step/proof/validator.h"
#include "tests/framework/step/cells.h"
#include "tests/framework/step/programs.h"
#include "tests/framework/step/simulator.h"
#include "tests/testing/full_test.h"

namespace delink::analysis_property_test {
namespace {

using step_test::Dice;
using step_test::DrawSample;
using step_test::DrawWithCopies;
using step_test::HalvesPlanner;
using step_test::Sample;
using step_test::ScatterLanes;
using step_test::Simulate;
using step_test::WithCopies;
using step_test::WithSomeStored;

const int kPrograms = testing::IsFullTest() ? 10'000 : 4'000;

// Second halves any number of micro-batches behind.
Program AnyProgram(const Sample& sample, Dice& dice) {
  constexpr PassKind kKinds[] = {PassKind::kStep,      PassKind::kStep,
                                 PassKind::kGradients, PassKind::kEvaluation,
                                 PassKind::kProbe,     PassKind::kDiagnosis};
  const PassKind kind = kKinds[dice.Below(6)];
  const bool halves =
      (kind == PassKind::kStep || kind == PassKind::kGradients) &&
      dice.Below(4) == 0;
  const Planner planner =
      halves ? HalvesPlanner(sample.options.recompute,
                             dice.Below(sample.shape.micro_batches + 1))
             : BasicPlanner(sample.options);
  return planner(kind, sample.shape, 0);
}

// That it is valid; and safe, half of the time in any lanes: planners to come
// put instructions in other ones. Returns it and what is derived of it.
std::pair<Program, Analysis> ExpectValidAndSafe(Program program,
                                                const std::string& text,
                                                Dice& dice) {
  const std::vector<Program> ranks(program.shape.ranks, program);
  const absl::Status status = ValidatePrograms(ranks);
  EXPECT_TRUE(status.ok()) << text << ": " << status.message();
  if (dice.Coin()) program = ScatterLanes(program, dice);
  const Analysis analysis = AnalyzeProgram(program);
  EXPECT_EQ(Simulate(program, analysis, dice), "")
      << text << ", " << ToString(program.kind);
  return {std::move(program), analysis};
}

TEST(AnalysisPropertyTest, PlannedProgramsAreValidAndSafe) {
  Dice dice(1);
  for (int n = 0; n < 2 * kPrograms; ++n) {
    Sample sample = DrawSample(dice);
    sample.shape.reduces_parts = n % 3 == 0;
    ExpectValidAndSafe(AnyProgram(sample, dice), sample.text, dice);
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
}

// By pool, the most slots that visits need at the same time.
std::vector<int32_t> PeakOf(const Program& program) {
  const ProgramShape& shape = program.shape;
  std::vector<int32_t> live(shape.layers), peak;
  const auto add = [&](int32_t layer, int32_t count) {
    const int32_t ends = layer == 0 ? 0 : layer + 1 == shape.layers ? 2 : 1;
    const size_t pool =
        shape.slot_class.empty() ? ends : shape.slot_class[layer];
    peak.resize(std::max(peak.size(), pool + 1));
    live[pool] += count;
    peak[pool] = std::max(peak[pool], live[pool]);
  };
  for (const Instruction& i : program.instructions) {
    if (i.op == Op::kForward) {
      if (i.layer == 0) add(0, 1);
      add(i.layer + 1, 1);
    } else if (i.op == Op::kLoss || i.op == Op::kBackward ||
               i.op == Op::kBackwardWeight) {
      add(i.layer, -1);
    }
  }
  return peak;
}

// The simulator sees what it is there to see: an analysis that lacks a
// dependency, calls a write first that is not, or lets two live slots be one.
bool IsCaught(const Program& program, const Analysis& analysis, Dice& dice) {
  for (int attempt = 0; attempt < 2000; ++attempt) {
    if (!Simulate(program, analysis, dice).empty()) return true;
  }
  return false;
}

// Whether an instruction is complete before a later one of the step begins, by
// lanes and dependencies.
bool ComesFirst(const Program& program, const Analysis& analysis, size_t first,
                size_t last) {
  std::vector<bool> before(last + 1), lanes(kLanes);
  before[last] = true;
  for (size_t i = last;; --i) {
    const auto lane = static_cast<size_t>(program.instructions[i].lane);
    const bool is_before = before[i] || lanes[lane];
    if (i == first) return is_before;
    if (!is_before) continue;
    lanes[lane] = true;
    for (const Dependency& d : analysis.dependencies[i]) {
      if (!d.previous_step) before[d.instruction] = true;
    }
  }
}

// Whether the copy 0 of the class of what is fetched or taken is free then in
// whatever order lanes run.
bool IsSurelyFree(const Program& program, const Analysis& analysis, size_t at) {
  const auto class_of = [&](const Instruction& i) {
    return CopyClassOf(program.shape, PlaneSetOf(i), i.slab);
  };
  for (size_t k = at; k-- > 0;) {
    const Instruction& i = program.instructions[k];
    if (!IsOfPlanes(i) || analysis.copies_of[k].front() != 0 ||
        class_of(i) != class_of(program.instructions[at])) {
      continue;
    }
    return i.op == Op::kRelease && ComesFirst(program, analysis, k, at);
  }
  return false;
}

TEST(AnalysisPropertyTest, CopiesOfWeightsAreSafe) {
  Dice dice(15);
  int again = 0;
  for (int n = 0; n < kPrograms / 4; ++n) {
    Sample sample = DrawWithCopies(dice);
    sample.shape.reduces_parts = n % 3 == 0;
    const auto kind = dice.Coin() ? PassKind::kStep : PassKind::kEvaluation;
    const auto [program, analysis] = ExpectValidAndSafe(
        WithCopies(BasicPlanner(sample.options)(kind, sample.shape, 0), dice),
        sample.text, dice);
    ASSERT_FALSE(::testing::Test::HasFailure());

    // One that is there is taken again.
    std::vector<int32_t> fetches;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& at = program.instructions[i];
      if (at.op != Op::kFetch && at.op != Op::kTake) continue;
      if (analysis.copies_of[i].front() == 1 &&
          !IsSurelyFree(program, analysis, i)) {
        fetches.push_back(static_cast<int32_t>(i));
      }
    }
    if (fetches.empty() || ++again > 100) continue;
    Analysis wrong = analysis;
    const int32_t from =
        fetches[dice.Below(static_cast<int32_t>(fetches.size()))];
    const Instruction first = program.instructions[from];
    for (size_t i = from; i < program.instructions.size(); ++i) {
      const Instruction& at = program.instructions[i];
      if (IsOfPlanes(at)) {
        const bool own =
            at.slab == first.slab && PlaneSetOf(at) == PlaneSetOf(first);
        if (own) wrong.copies_of[i] = {0};
        if (own && at.op == Op::kRelease) break;
        continue;
      }
      const std::vector<step_test::Work> work =
          step_test::WorkOf(sample.shape, at);
      for (size_t k = 0; k < work.size(); ++k) {
        const bool own =
            work[k].slab == first.slab && work[k].planes == PlaneSetOf(first);
        if (own) wrong.copies_of[i][k] = 0;
      }
    }
    EXPECT_TRUE(IsCaught(program, wrong, dice)) << sample.text;
  }
  EXPECT_GT(again, kPrograms / 100);
}

// Gathers and updates of shards: one that does not wait meets shards of another
// step, or changes a shard under its copy.
TEST(AnalysisPropertyTest, SimulatorCatchesShardsThatDoNotWait) {
  Dice dice(19);
  int gathers = 0, updates = 0;
  for (int n = 0; n < kPrograms / 4; ++n) {
    Sample sample = DrawWithCopies(dice);
    if (sample.shape.shards.empty() || sample.shape.layers > 5) continue;
    sample.shape.micro_batches = 1;
    const Program program = ScatterLanes(
        WithCopies(PlanStep(sample.shape, sample.options), dice), dice);
    const Analysis analysis = AnalyzeProgram(program);
    const auto is_of_copy = [&](const Dependency& d, int32_t slab) {
      const Instruction& i = program.instructions[d.instruction];
      return IsOfPlanes(i) && i.slab == slab && IsOfWeights(PlaneSetOf(i));
    };
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& at = program.instructions[i];
      const bool update =
          at.op == Op::kUpdate && step_test::HasShard(sample.shape, at.slab);
      if (!update && !step_test::GathersAt(sample.shape, at)) continue;
      int& count = update ? updates : gathers;
      Analysis wrong = analysis;
      const auto removed =
          std::erase_if(wrong.dependencies[i], [&](const Dependency& d) {
            const Instruction& on = program.instructions[d.instruction];
            return update ? is_of_copy(d, at.slab)
                          : on.op == Op::kUpdate && on.slab == at.slab;
          });
      if (removed == 0 || count > 40) continue;
      ++count;
      EXPECT_TRUE(IsCaught(program, wrong, dice))
          << sample.text << ": " << ToString(at);
    }
  }
  EXPECT_GT(gathers, 20);
  EXPECT_GT(updates, 20);
}

// Also of slots of which two are in one place on the host.
TEST(AnalysisPropertyTest, StoredSlotsAreSafe) {
  Dice dice(16);
  int wrong = 0, stored = 0;
  for (int n = 0; n < kPrograms / 4; ++n) {
    const Sample sample = dice.Coin() ? DrawSample(dice) : DrawWithCopies(dice);
    Program planned = WithSomeStored(AnyProgram(sample, dice), dice);
    if (!sample.shape.copies.empty()) planned = WithCopies(planned, dice);
    auto [program, analysis] =
        ExpectValidAndSafe(std::move(planned), sample.text, dice);
    ASSERT_FALSE(::testing::Test::HasFailure());
    for (const auto& of_layer : analysis.stored_of) {
      const auto one = std::find_if(of_layer.begin(), of_layer.end(),
                                    [](int32_t place) { return place >= 0; });
      stored += one != of_layer.end() ? 1 : 0;
    }
    for (auto& of_layer : analysis.stored_of) {
      const auto one = std::find(of_layer.begin(), of_layer.end(), 1);
      if (one == of_layer.end() || wrong > 100) continue;
      *one = 0;
      ++wrong;
      EXPECT_TRUE(IsCaught(program, analysis, dice)) << sample.text;
      break;
    }
  }
  EXPECT_GT(stored, kPrograms / 10);
  EXPECT_GT(wrong, kPrograms / 100);
}

TEST(AnalysisPropertyTest, SlotsAreAsFewAsCanBe) {
  Dice dice(4);
  for (int n = 0; n < 1000; ++n) {
    const Sample sample = DrawSample(dice);
    std::vector<std::vector<int32_t>> peaks;
    for (const auto order :
         {MicroBatchOrder::kMicroBatchMajor, MicroBatchOrder::kLayerMajor}) {
      for (const bool recompute : {false, true}) {
        const Program program =
            PlanStep(sample.shape, {.order = order, .recompute = recompute});
        const Analysis a = AnalyzeProgram(program);
        ASSERT_EQ(a.slots, PeakOf(program)) << sample.text;
        EXPECT_EQ(a.boundaries, order == MicroBatchOrder::kLayerMajor
                                    ? sample.shape.micro_batches
                                    : 1);
        peaks.push_back(a.slots);
      }
    }
    EXPECT_EQ(peaks[0], peaks[1]) << "recompute changes no count";
    EXPECT_EQ(peaks[2], peaks[3]) << "recompute changes no count";
    const int32_t times = sample.shape.micro_batches;
    for (int32_t& slots : peaks[0]) slots *= times;
    EXPECT_EQ(peaks[2], peaks[0]);
  }
}

// By class of slots, the most visits that are between their halves at a time.
std::vector<int32_t> HeldPeakOf(const Program& program) {
  const ProgramShape& shape = program.shape;
  std::vector<int32_t> live(SlotClasses(shape)), peak(live);
  for (const Instruction& i : program.instructions) {
    if (i.op != Op::kBackwardInput && i.op != Op::kBackwardWeight) continue;
    int32_t& count = live[SlotClassOf(shape, i.layer)];
    count += i.op == Op::kBackwardInput ? 1 : -1;
    int32_t& most = peak[SlotClassOf(shape, i.layer)];
    most = std::max(most, count);
  }
  return peak;
}

TEST(AnalysisPropertyTest, HalvesHoldAsLittleAsCanBe) {
  Dice dice(8);
  for (int n = 0; n < 1000; ++n) {
    const Sample sample = DrawSample(dice);
    const Program program =
        HalvesPlanner(dice.Coin(), dice.Below(sample.shape.micro_batches + 1))(
            PassKind::kStep, sample.shape, 0);
    const Analysis a = AnalyzeProgram(program);
    ASSERT_EQ(a.slots, PeakOf(program)) << sample.text;
    ASSERT_EQ(a.held, HeldPeakOf(program)) << sample.text;
    EXPECT_EQ(a.boundaries, 1);
  }
}

// Small programs, their steps unrolled, and all paths between instructions.
class Paths {
 public:
  static constexpr int kSteps = 3;
  static constexpr int kMost = 512;

  Paths(const Program& program, const Analysis& analysis)
      : count_(static_cast<int>(program.instructions.size())),
        after_(kSteps * count_) {
    std::vector<std::vector<int>> edges(kSteps * count_);
    std::vector<int> lane_end(kLanes, -1);
    for (int p = 0; p < kSteps * count_; ++p) {
      int& end =
          lane_end[static_cast<int>(program.instructions[p % count_].lane)];
      if (end >= 0) edges[end].push_back(p);
      end = p;
      for (const Dependency& d : analysis.dependencies[p % count_]) {
        const int from =
            (p / count_ - (d.previous_step ? 1 : 0)) * count_ + d.instruction;
        if (from >= 0) edges[from].push_back(p);
      }
    }
    for (int p = kSteps * count_ - 1; p >= 0; --p) {
      for (const int to : edges[p]) {
        after_[p].set(to);
        after_[p] |= after_[to];
      }
    }
  }

  bool Reaches(int from, int to) const { return after_[from][to]; }

 private:
  const int count_;
  std::vector<std::bitset<kMost>> after_;
};

TEST(AnalysisPropertyTest, DependenciesAreCompleteAndMinimal) {
  Dice dice(5);
  int programs = 0, removed = 0;
  while (programs < 300) {
    Sample sample = dice.Coin() ? DrawSample(dice) : DrawWithCopies(dice);
    sample.shape.micro_batches = dice.Between(1, 3);
    sample.shape.reduces_parts = programs % 3 == 0;
    Program program =
        dice.Coin() ? PlanStep(sample.shape, sample.options)
                    : HalvesPlanner(sample.options.recompute, dice.Below(3))(
                          PassKind::kStep, sample.shape, 0);
    if (!sample.shape.copies.empty()) program = WithCopies(program, dice);
    const int count = static_cast<int>(program.instructions.size());
    if (count > 40) continue;
    if (dice.Coin()) program = ScatterLanes(program, dice);
    ++programs;
    Analysis analysis = AnalyzeProgram(program);
    const int cells = step_test::CountCells(program, analysis);
    std::vector<std::vector<std::pair<int, bool>>> users(cells);
    for (int p = 0; p < Paths::kSteps * count; ++p) {
      for (const auto& access :
           step_test::AccessesOf(program, analysis, p % count)) {
        users[access.cell].emplace_back(p, access.write);
      }
    }
    const Paths paths(program, analysis);
    for (const auto& cell : users) {
      for (size_t b = 0; b < cell.size(); ++b) {
        for (size_t a = 0; a < b; ++a) {
          if (!cell[a].second && !cell[b].second) continue;
          ASSERT_TRUE(cell[a].first == cell[b].first ||
                      paths.Reaches(cell[a].first, cell[b].first))
              << sample.text;
        }
      }
    }
    for (int i = 0; i < count; ++i) {
      for (size_t k = 0; k < analysis.dependencies[i].size(); ++k) {
        Analysis without = analysis;
        const Dependency d = analysis.dependencies[i][k];
        without.dependencies[i].erase(without.dependencies[i].begin() + k);
        const int to = (Paths::kSteps - 1) * count + i;
        const int from =
            (Paths::kSteps - (d.previous_step ? 2 : 1)) * count + d.instruction;
        ASSERT_FALSE(Paths(program, without).Reaches(from, to))
            << sample.text << ": " << ToString(program.instructions[i])
            << " waits for " << ToString(program.instructions[d.instruction])
            << " needlessly";
        ++removed;
      }
    }
  }
  EXPECT_GT(removed, 1000);
}

TEST(AnalysisPropertyTest, SimulatorCatchesWrongAnalyses) {
  Dice dice(6);
  for (int n = 0; n < 200; ++n) {
    Sample sample = DrawSample(dice);
    // One rank may have nothing to wait for.
    sample.shape.ranks = std::max(sample.shape.ranks, 2);
    const Program program = PlanStep(sample.shape, sample.options);
    const int count = static_cast<int>(program.instructions.size());
    const Analysis analysis = AnalyzeProgram(program);
    Analysis wrong = analysis;
    int i = dice.Below(count);
    while (wrong.dependencies[i].empty()) i = (i + 1) % count;
    const Dependency d = wrong.dependencies[i].front();
    wrong.dependencies[i].erase(wrong.dependencies[i].begin());
    EXPECT_TRUE(IsCaught(program, wrong, dice))
        << sample.text << ": " << ToString(program.instructions[i])
        << " does not wait for "
        << ToString(program.instructions[d.instruction]);

    wrong = analysis;
    i = dice.Below(count);
    while (wrong.written[i].empty()) i = (i + 1) % count;
    wrong.written[i].back() = !wrong.written[i].back();
    EXPECT_TRUE(IsCaught(program, wrong, dice)) << sample.text;

    wrong = analysis;
    if (*std::max_element(wrong.slots.begin(), wrong.slots.end()) < 2) continue;
    for (auto& slots : wrong.slot_of) {
      for (int32_t& slot : slots) slot = slot == 1 ? 0 : slot;
    }
    EXPECT_TRUE(IsCaught(program, wrong, dice)) << sample.text;
  }
}

TEST(AnalysisPropertyTest, SimulatorCatchesWhatIsHeldReused) {
  Dice dice(9);
  int held = 0, slots = 0;
  for (int n = 0; n < 100; ++n) {
    const Sample sample = DrawSample(dice);
    const Program program =
        HalvesPlanner(false, 1)(PassKind::kStep, sample.shape, 0);
    const Analysis analysis = AnalyzeProgram(program);
    Analysis wrong = analysis;
    if (std::ranges::max(analysis.held) > 1) {
      ++held;
      for (auto& numbers : wrong.held_of) {
        for (int32_t& number : numbers) number = number == 1 ? 0 : number;
      }
      EXPECT_TRUE(IsCaught(program, wrong, dice)) << sample.text;
    }
    // A slot that is given back by the first half.
    wrong = analysis;
    if (sample.shape.micro_batches < 2) continue;
    ++slots;
    for (int32_t layer = 1; layer + 1 < sample.shape.layers; ++layer) {
      wrong.slot_of[layer][1] = wrong.slot_of[layer][0];
    }
    EXPECT_TRUE(IsCaught(program, wrong, dice)) << sample.text;
  }
  EXPECT_GT(held, 50);
  EXPECT_GT(slots, 50);
}

TEST(AnalysisPropertyTest, SimulatorCatchesWholeGradientsInOnePlace) {
  Dice dice(17);
  int wrong = 0;
  for (int n = 0; n < 400; ++n) {
    Sample sample = DrawSample(dice);
    sample.shape.ranks = std::max(sample.shape.ranks, 2);
    sample.shape.reduces_parts = dice.Coin();
    const Program program = PlanStep(sample.shape, sample.options);
    Analysis analysis = AnalyzeProgram(program);
    if (analysis.wholes.empty() || std::ranges::max(analysis.wholes) < 2) {
      continue;
    }
    ++wrong;
    for (int32_t& number : analysis.whole_of) number = number == 1 ? 0 : number;
    EXPECT_TRUE(IsCaught(program, analysis, dice)) << sample.text;
  }
  EXPECT_GT(wrong, 100);
}

}  // namespace
}  // namespace delink::analysis_property_test
