// Experts cut over ranks, against the same on one rank, whichever way tokens
// reach them: the rounding of sums taken in other orders apart, they are the
// same.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/modules/moe.h"
#include "layers/ops/expert_exchange.h"
#include "layers/ops/experts.h"
#include "tests/testing/cut_layer.h"
#include "tests/testing/noted_group.h"

namespace delink::cut_experts_test {
namespace {

using testing::CutCase;
using testing::CutOptions;
using testing::CutResult;
using testing::LayerOf;
using testing::MemoryMode;
using testing::RunCut;

constexpr int64_t kB = 2, kT = 16, kD = 12;
// As cut_test's.
constexpr double kSums = 8 * 10;
constexpr double kMuch = 100;  // room for any choices

CutCase CaseOf(const Moe::Config& config) {
  CutCase c{.build = LayerOf<Moe>(config), .B = kB, .T = kT, .D = kD};
  c.targets.assign(kB * kT, 1);
  for (int64_t i = 0; i < kB * kT; i += 5) c.targets[i] = -1;
  return c;
}

Moe::Config ConfigOf(const ops::RouteConfig& route, int64_t experts = 8) {
  return {.dim = kD, .experts = experts, .hidden = 6, .route = route};
}

std::vector<Moe::Config> Configs() {
  std::vector<Moe::Config> configs = {
      ConfigOf({.top_k = 1}),
      ConfigOf({.top_k = 2, .form = {.normalise = true}}),
      ConfigOf({.top_k = 8}),  // all of them
      ConfigOf({.top_k = 3,
                .form = {.sigmoid = true,
                         .normalise = true,
                         .groups = 4,
                         .top_groups = 2,
                         .scale = 2.5}}),
      // Two prototypes of each pair of ranks, and a half of one on each.
      ConfigOf({.top_k = 4, .form = {.prototypes = 4}}, 16),
      ConfigOf({.top_k = 4, .form = {.prototypes = 2}}, 8),
      ConfigOf({.top_k = 2, .capacity = 0.5}),
      ConfigOf({.top_k = 2, .capacity = 0.5, .drop_by_position = true}),
      ConfigOf({.top_k = 2, .aux_loss = 0.1, .z_loss = 0.01}),
      ConfigOf({.top_k = 1}, 64)};  // most without a token
  configs[1].bias = true;
  configs[1].activation = ExpertActivation::kGeluTanh;
  configs[3].shared_hidden = 8;
  configs[3].bias_rate = 0.1;
  // All tokens choose the first expert, and other ranks have none.
  configs.push_back(configs[1]);
  configs.back().stddev = 0;
  configs.back().route.top_k = 1;
  return configs;
}

struct Ranks {
  int tensor, context, expert;
};
constexpr Ranks kRanks[] = {{2, 1, 2}, {4, 1, 4}, {4, 1, 2},
                            {1, 2, 2}, {2, 2, 4}, {2, 2, 2}};

// How tokens reach experts.
struct Way {
  double room = 0;
  bool once = false, one_a_node = false;
};
constexpr Way kWays[] = {{}, {kMuch}, {kMuch, true}, {kMuch, true, true}};

CutOptions OptionsOf(const Ranks& ranks, const Way& way) {
  return {.ranks = ranks.tensor,
          .sequence = ranks.tensor > 1,
          .context = ranks.context,
          .expert = ranks.expert,
          .expert_room = way.room,
          .nodes = !way.once        ? 1
                   : way.one_a_node ? ranks.expert
                                    : 2,
          .memory = MemoryMode::kPlanned};
}

TEST(CutExperts, AreThoseOfOneRank) {
  int i = 0;
  for (const Moe::Config& config : Configs()) {
    const CutCase c = CaseOf(config);
    const CutResult whole = RunCut(c, {.times = 2});
    for (const Ranks& ranks : kRanks) {
      for (const Way& way : kWays) {
        SCOPED_TRACE(::testing::Message()
                     << config.route.top_k << " of " << config.experts
                     << ", capacity " << config.route.capacity << ", tensor "
                     << ranks.tensor << ", context " << ranks.context
                     << ", expert " << ranks.expert << ", room " << way.room
                     << (way.once ? ", once" : ""));
        CutOptions options = OptionsOf(ranks, way);
        options.halves = ++i % 2 == 0;
        options.remake = i % 3 != 0;
        options.times = 2;
        const CutResult cut = RunCut(c, options);
        EXPECT_EQ(cut.loss.lost, 0);
        ExpectSame(cut, whole, kSums * 0x1p-53);
        options.expert_overlap = true;
        const CutResult overlapped = RunCut(c, options);
        EXPECT_EQ(overlapped.y, cut.y);
        EXPECT_EQ(overlapped.dx, cut.dx);
        EXPECT_EQ(overlapped.sums, cut.sums);
        EXPECT_EQ(overlapped.gradients, cut.gradients);
      }
    }
  }
}

// Ranks that all have the same tokens only add up what their experts make.
TEST(CutExperts, OfTokensThatAllRanksHave) {
  int i = 0;
  for (const Moe::Config& config : Configs()) {
    const CutCase c = CaseOf(config);
    const CutResult whole = RunCut(c, {.times = 2});
    for (const auto& [ranks, expert] : {std::pair(2, 2), {4, 4}, {4, 2}}) {
      SCOPED_TRACE(::testing::Message()
                   << config.route.top_k << " of " << config.experts << ", "
                   << expert << " of " << ranks << " ranks");
      ++i;
      ExpectSame(RunCut(c, {.ranks = ranks,
                            .expert = expert,
                            .same_tokens = true,
                            .memory = MemoryMode::kPlanned,
                            .halves = i % 2 == 0,
                            .remake = i % 3 != 0,
                            .times = 2}),
                 whole, kSums * 0x1p-53);
    }
  }
}

// A token's outputs are added in the order of its choices, wherever they come
// from; two of them also where ranks add them.
TEST(CutExperts, HaveTheBitsOfOneRank) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t top_k : {1, 2, 4}) {
      const CutCase c =
          CaseOf(ConfigOf({.top_k = top_k, .form = {.normalise = true}}));
      const CutResult whole = RunCut(c, {.dtype = dtype});
      for (const Ranks& ranks : kRanks) {
        for (const Way& way : kWays) {
          if ((way.room == 0 || way.once) && top_k > 2) continue;
          SCOPED_TRACE(::testing::Message()
                       << top_k << " chosen, tensor " << ranks.tensor
                       << ", context " << ranks.context << ", expert "
                       << ranks.expert << ", room " << way.room
                       << (way.once ? ", once" : ""));
          CutOptions options = OptionsOf(ranks, way);
          options.dtype = dtype;
          const CutResult cut = RunCut(c, options);
          EXPECT_EQ(cut.y, whole.y);
          EXPECT_EQ(cut.dx, whole.dx);
        }
      }
      if (top_k > 2) continue;
      const CutResult cut = RunCut(
          c, {.ranks = 4, .expert = 4, .same_tokens = true, .dtype = dtype});
      EXPECT_EQ(cut.y, whole.y);
    }
  }
}

// Rows of a rank, of 64 tokens that choose 2 of 16 experts, and slots of its
// hops. With this capacity an expert takes 6 choices of a rank's tokens.
TEST(CutExperts, PlanNoMoreRowsThanACapacityLeaves) {
  constexpr int64_t kTokens = 64, kExperts = 16;
  constexpr Phase kTrain = Phase::kRecord;
  const struct {
    Ranks ranks;
    int nodes;
    double room;
    double capacity;
    bool counted;
    Phase phase;
    int64_t rows;
    std::vector<int64_t> slots = {};
    bool same_tokens = false;
  } cases[] = {
      {{1, 1, 1}, 1, 0, 0.75, true, kTrain, 16 * 6},
      {{1, 1, 1}, 1, 0, 0.75, false, kTrain, 128},
      {{1, 1, 1}, 1, 0, 0.75, true, Phase::kEval, 128},
      {{1, 1, 1}, 1, 0, 0, true, kTrain, 128},
      {{1, 1, 1}, 1, 0, 2, true, kTrain, 128},
      // Each rank has a micro-batch of its own.
      {{1, 1, 4}, 1, 0, 0.75, true, kTrain, 4 * 4 * 6},
      {{1, 1, 4}, 1, 0, 0.75, false, kTrain, 4 * 128},
      {{1, 1, 4}, 1, kMuch, 0.75, true, kTrain, 4 * 4 * 6, {4 * 6}},
      {{1, 1, 4}, 1, kMuch, 0.75, true, Phase::kEval, 4 * 128, {128}},
      {{1, 1, 4}, 1, 0.5, 0.75, true, kTrain, 4 * 16, {16}},
      {{1, 1, 4}, 2, kMuch, 0.75, true, kTrain, 4 * 4 * 6, {8 * 6, 4 * 6 * 2}},
      {{1, 1, 4}, 4, kMuch, 0.75, true, kTrain, 4 * 4 * 6, {4 * 6}},
      // Four have one, of 4 x 6 choices; then two have one each, of 2 x 6; then
      // some of six have one, and some of the next six, of 6 x 6 each.
      {{2, 2, 4}, 1, 0, 0.75, true, kTrain, 4 * 24},
      {{2, 2, 4}, 1, kMuch, 0.75, true, kTrain, 4 * 24, {4 * 24}},
      {{2, 1, 4}, 1, 0, 0.75, true, kTrain, 4 * 12 * 2},
      {{2, 1, 4}, 1, kMuch, 0.75, true, kTrain, 4 * 12 * 2, {4 * 12}},
      {{2, 3, 4}, 1, 0, 0.75, true, kTrain, 4 * 36 * 2},
      {{2, 2, 2}, 1, 0, 0.25, true, kTrain, 8 * 8},
      {{1, 1, 4}, 1, 0, 0.75, true, kTrain, 4 * 6, {}, true},
      {{1, 1, 4}, 1, 0, 0.75, true, Phase::kEval, 128, {}, true}};
  const std::unique_ptr<Device> meta = NewMetaDevice();
  const std::unique_ptr<Stream> stream = meta->NewStream();
  void* const anywhere = *meta->Allocate(0, "inputs");
  for (const auto& c : cases) {
    SCOPED_TRACE(::testing::Message() << "case " << &c - cases);
    testing::NotedGroup tensor(0, c.ranks.tensor), context(0, c.ranks.context),
        expert(0, c.ranks.expert);
    expert.set_nodes(c.nodes);
    const auto group = [](testing::NotedGroup& of) {
      return of.size() > 1 ? &of : nullptr;
    };
    MeasuringMemory memory;
    Tape tape({.device = meta.get(),
               .stream = stream.get(),
               .groups = {.tensor = group(tensor),
                          .context = group(context),
                          .expert = group(expert),
                          .sequence = c.ranks.tensor > 1,
                          .same_tokens = c.same_tokens}},
              memory);
    tape.BeginForward(c.phase, {.training = c.phase != Phase::kEval,
                                .all_counted = c.counted,
                                .sequences = 1,
                                .expert_room = c.room});
    const Var x =
        tape.Input(Tensor(anywhere, DType::kBF16, {1, kTokens, kD}), true);
    const Var logits =
        tape.Input(Tensor(anywhere, DType::kF32, {kTokens, kExperts}), true);
    ops::ExpertExchange exchange(
        x, ops::Route(logits, {.top_k = 2, .capacity = c.capacity}, nullptr));
    const ops::AtExperts at = exchange.Arrive(0);
    EXPECT_EQ(at.r.cap, c.rows);
    EXPECT_EQ(ops::Dispatch(at.x, at.r).dim(0), c.rows);
    std::vector<int64_t> slots;
    for (const testing::Exchange& note : expert.TakeNotes()) {
      if (note.kind != testing::Exchange::Kind::kAllToAll) continue;
      if (note.dtype != DType::kBF16) continue;  // not tokens
      const bool two = c.nodes > 1 && c.nodes < c.ranks.expert;
      const int64_t to = !two            ? c.ranks.expert
                         : slots.empty() ? c.nodes
                                         : c.ranks.expert / c.nodes;
      slots.push_back(note.count / kD / to);
    }
    EXPECT_EQ(slots, c.slots);
  }
}

}  // namespace
}  // namespace delink::cut_experts_test
