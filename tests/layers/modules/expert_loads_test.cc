// Loads of experts over ranks, from even to all on one rank. Choices are
// forced, so a few lines count them: each expert's, those that a capacity drops
// and those that find no room. However tokens reach experts, these are the
// numbers, and with enough room outputs and gradients are those of one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "framework/tensor/bfloat16.h"
#include "layers/modules/moe.h"
#include "tests/testing/cut_layer.h"
#include "tests/testing/gradcheck.h"
#include "tests/testing/numbers.h"

namespace delink::expert_loads_test {
namespace {

using testing::CutCase;
using testing::CutOptions;
using testing::CutResult;
using testing::LayerOf;
using testing::MemoryMode;
using testing::RunCut;

// Rows of kD numbers fill whole units of alignment, so that one beyond those
// planned would be another value's memory.
constexpr int64_t kB = 2, kT = 32, kN = kB * kT, kE = 16, kK = 4, kD = 32;
// Micro-batches that are added up, each of two forwards.
constexpr int kPasses = 3, kForwards = 2;
constexpr double kMuch = 100;  // room for any choices

// Ranks of experts in Zipf's law: the share of expert e falls by (e + 1)^-1.2.
int64_t Zipf(double at) {
  std::vector<double> shares(kE);
  for (int64_t e = 0; e < kE; ++e) shares[e] = std::pow(e + 1, -1.2);
  at *= std::accumulate(shares.begin(), shares.end(), 0.0);
  int64_t e = 0;
  while (e < kE - 1 && (at -= shares[e]) > 0) ++e;
  return e;
}

// Choice j of token n in a micro-batch. The choices of a token differ.
struct Load {
  const char* name;
  int64_t (*chosen)(int64_t pass, int64_t n, int64_t j);
  // With 4 ranks: choices of each rank's experts in the first micro-batch, and
  // the least room that they need, without and with two machines.
  std::vector<int64_t> of_ranks;
  double room, room_once;
};
// The choices that a capacity leaves to an expert; 0: those of all tokens.
int64_t LimitOf(double capacity) {
  return capacity > 0 ? static_cast<int64_t>(std::ceil(capacity * kN * kK / kE))
                      : kN;
}

const Load kLoads[] = {
    {"balanced",
     [](int64_t, int64_t n, int64_t j) { return (n * kK + j) % kE; },
     {64, 64, 64, 64},
     1,
     1},
    {"hot",
     [](int64_t, int64_t n, int64_t j) {
       return j == 0 ? 0 : 1 + (n + j) % (kE - 1);
     },
     {103, 57, 48, 48},
     1.6875,
     1.625},
    {"zipf",
     [](int64_t, int64_t n, int64_t j) {
       const double golden = 0.6180339887498949 * static_cast<double>(n);
       const int64_t first = Zipf(golden - std::floor(golden));
       return (first + j * (1 + n % 2)) % kE;
     },
     {119, 82, 33, 22},
     2,
     1.90625},
    {"drifting",
     [](int64_t pass, int64_t n, int64_t j) {
       return (5 * pass + (j == 0 ? 0 : 1 + (n + j) % (kE - 1))) % kE;
     },
     {103, 57, 48, 48},
     1.6875,
     1.625},
    {"adversarial",
     [](int64_t, int64_t n, int64_t j) { return 8 + (n + j) % 4; },
     {0, 0, 256, 0},
     4,
     4},
    // The first half of tokens finds its experts on its own rank, of 4.
    {"empty",
     [](int64_t, int64_t n, int64_t j) {
       const int64_t rank = n / (kN / 4);
       return rank < 2 ? 4 * rank + j : (n + j) % 4;
     },
     {192, 64, 0, 0},
     4,
     4}};

using Token = std::vector<int64_t>;  // its experts, in order
using Tokens = std::vector<Token>;

// What all ranks together are to have.
struct Counts {
  std::vector<Tokens> passes = std::vector<Tokens>(kPasses, Tokens(kN));
  std::vector<double> sums = std::vector<double>(kE + 2);
  std::vector<double> bias = std::vector<double>(kE * kD);  // its gradient
};

Counts CountsOf(const Load& load, const CutCase& c, double capacity) {
  const auto most = static_cast<double>(LimitOf(capacity));
  double gates[kK] = {}, all = 0;
  for (int64_t j = 0; j < kK; ++j) all += gates[j] = std::exp(-j);
  const auto dy = testing::Normals<BFloat16>("dy", kN * kD);
  Counts counts;
  for (int64_t pass = 0; pass < kPasses; ++pass) {
    std::vector<double> of_expert(kE);
    for (int64_t i = 0; i < kN * kK; ++i) {
      const int64_t n = i / kK, e = load.chosen(pass, n, i % kK);
      if (c.targets[n] >= 0) {
        ++counts.sums[e];
        ++counts.sums[kE];
        if (++of_expert[e] > most) {
          ++counts.sums[kE + 1];
          continue;
        }
      }
      counts.passes[pass][n].push_back(e);
      for (int64_t d = 0; d < kD; ++d) {
        counts.bias[e * kD + d] += gates[i % kK] / all * float{dy[n * kD + d]};
      }
    }
  }
  return counts;
}

CutCase CaseOf(const Load& load, double capacity, bool all_counted) {
  CutCase c{.build = LayerOf<Moe>(
                Moe::Config{.dim = kD,
                            .experts = kE,
                            .hidden = 6,
                            .route = {.top_k = kK,
                                      .form = {.normalise = true},
                                      .capacity = capacity,
                                      .drop_by_position = true},
                            .bias = true,
                            .activation = ExpertActivation::kGeluTanh}),
            .B = kB,
            .T = kT,
            .D = kD};
  for (int64_t n = 0; n < kN; ++n) {
    c.targets.push_back(n % 5 == 0 && !all_counted ? -1 : 1);
  }
  // Logits are the first elements of x.
  std::vector<double>& w = c.weights["layer/router/weight"];
  w.resize(kE * kD);
  for (int64_t e = 0; e < kE; ++e) w[e * kD + e] = 1;
  for (const BFloat16 x : testing::Normals<BFloat16>("x", kPasses * kN * kD)) {
    c.x.push_back(std::min(float{x}, 4.0F));
  }
  for (int64_t i = 0; i < kPasses * kN * kK; ++i) {
    const int64_t n = i / kK, j = i % kK;
    c.x[n * kD + load.chosen(n / kN, n % kN, j)] = 8 - static_cast<double>(j);
  }
  return c;
}

int64_t SlotsOf(double room, int64_t choices, int64_t ranks, int64_t most) {
  const double slots = std::ceil(room * static_cast<double>(choices) /
                                 static_cast<double>(ranks));
  return std::clamp(static_cast<int64_t>(slots), int64_t{1}, most);
}

// The choices that find no slot, of `slots` for each rank of `each` experts.
double Beyond(const Tokens& tokens, int64_t each, int64_t slots) {
  std::map<int64_t, int64_t> taken;
  double lost = 0;
  for (const Token& token : tokens) {
    for (const int64_t e : token) lost += ++taken[e / each] > slots ? 1 : 0;
  }
  return lost;
}

// Of each rank of a group whose ranks have these tokens. With M > 1 machines a
// token first takes one slot of each that has experts of it. An expert has at
// most `limit` choices. Slots of a rank are for equal `parts` of its experts.
std::vector<double> LostOf(const std::vector<Tokens>& ranks, int64_t M,
                           double room, int64_t limit, int64_t parts) {
  const auto G = static_cast<int64_t>(ranks.size()), here = G / M;
  const auto N = static_cast<int64_t>(ranks[0].size());
  const int64_t each = kE / G, width = each / parts;
  std::vector<double> lost(G);
  std::vector<Tokens> sent(G);
  const int64_t slots =
      SlotsOf(room, N * std::min(kK, M), M, std::min(N, each * here * limit));
  for (int64_t i = 0; i < G * M; ++i) {
    const int64_t r = i / M, machine = i % M;
    Tokens& to = sent[machine * here + r % here];
    int64_t taken = 0;
    for (const Token& token : ranks[r]) {
      Token part;
      for (const int64_t e : token) {
        if (e / (each * here) == machine) part.push_back(e);
      }
      if (part.empty()) continue;
      if (M == 1 || ++taken <= slots) {
        to.push_back(part);
      } else {
        lost[r] += static_cast<double>(part.size());
      }
    }
  }
  if (M == G) return lost;
  const int64_t tokens = M > 1 ? M * slots : N;
  for (int64_t r = 0; r < G; ++r) {
    lost[r] +=
        Beyond(sent[r], width,
               SlotsOf(room, N * kK, here * parts,
                       std::min(tokens * std::min(width, kK), width * limit)));
  }
  return lost;
}

struct Layout {
  int tensor, context, expert, nodes;
  double room;
  bool overlap = false;
  int parts() const {
    return overlap && (nodes == 1 || nodes < expert) && kE / expert % 2 == 0
               ? 2
               : 1;
  }
};

CutOptions OptionsOf(const Layout& of) {
  return {.ranks = of.tensor,
          .sequence = of.tensor > 1,
          .context = of.context,
          .expert = of.expert,
          .expert_room = of.room,
          .expert_overlap = of.overlap,
          .nodes = of.nodes,
          .memory = MemoryMode::kPlanned,
          .times = kPasses};
}

// Of every rank, from the tokens that it has.
std::vector<double> LostIn(const Layout& of, const Counts& counts,
                           const CutResult& cut, int64_t limit = kN) {
  std::vector<double> all(cut.ranks.size());
  for (const Tokens& pass : counts.passes) {
    for (size_t first = 0; of.room > 0 && first < all.size();
         first += of.expert) {
      std::vector<Tokens> group(of.expert);
      for (int r = 0; r < of.expert; ++r) {
        for (const int64_t n : cut.ranks[first + r].tokens) {
          group[r].push_back(pass[n]);
        }
      }
      const std::vector<double> lost =
          LostOf(group, of.nodes, of.room, limit, of.parts());
      for (int r = 0; r < of.expert; ++r) {
        all[first + r] += kForwards * lost[r];
      }
    }
  }
  return all;
}

void ExpectCounted(const CutResult& result, const Counts& counts) {
  ASSERT_GE(result.sums.size(), counts.sums.size());
  for (size_t i = 0; i < counts.sums.size(); ++i) {
    EXPECT_EQ(result.sums[i], kForwards * counts.sums[i]) << "sum " << i;
  }
}

TEST(ExpertLoads, AreCountedAndComputedExactly) {
  constexpr Layout kRanks[] = {
      {4, 1, 4}, {2, 1, 2}, {2, 2, 4}, {4, 1, 2}, {1, 2, 2}};
  for (const Load& load : kLoads) {
    for (const auto& [capacity, all_counted] :
         {std::pair(0.0, false), {0.45, false}, {0.45, true}}) {
      const CutCase c = CaseOf(load, capacity, all_counted);
      const int64_t limit = all_counted ? LimitOf(capacity) : kN;
      const Counts counts = CountsOf(load, c, capacity);
      const CutResult whole = RunCut(c, {.times = kPasses});
      // A visit that knows that all are counted has no rows to spare.
      const CutResult exact = RunCut(c, {.memory = MemoryMode::kPlanned,
                                         .all_counted = all_counted,
                                         .times = kPasses});
      EXPECT_EQ(exact.y, whole.y);
      EXPECT_EQ(exact.dx, whole.dx);
      EXPECT_EQ(exact.gradients, whole.gradients);
      ExpectCounted(whole, counts);
      EXPECT_LE(testing::NormError(
                    whole.gradients.at("layer/experts/down/bias"), counts.bias),
                1e-14);
      for (Layout of : kRanks) {
        for (const int nodes : {0, 1, 2}) {
          for (const double room : {0.3, 2.0, kMuch}) {
            if (nodes == 0 && room < kMuch) continue;
            of.nodes = std::max(nodes, 1);
            of.room = nodes == 0 ? 0 : room;
            of.overlap = !of.overlap;
            SCOPED_TRACE(::testing::Message()
                         << load.name << ", capacity " << capacity
                         << (all_counted ? ", all counted" : "") << ", tensor "
                         << of.tensor << ", context " << of.context
                         << ", expert " << of.expert << ", machines "
                         << of.nodes << ", room " << of.room
                         << (of.overlap ? ", overlap" : ""));
            CutOptions options = OptionsOf(of);
            options.all_counted = all_counted;
            const CutResult cut = RunCut(c, options);
            const std::vector<double> lost = LostIn(of, counts, cut, limit);
            for (size_t r = 0; r < lost.size(); ++r) {
              EXPECT_EQ(cut.ranks[r].lost, lost[r]) << "rank " << r;
            }
            EXPECT_EQ(cut.loss.lost,
                      std::accumulate(lost.begin(), lost.end(), 0.0));
            ExpectCounted(cut, counts);
            if (room < kMuch && cut.loss.lost > 0) continue;
            EXPECT_EQ(cut.loss.lost, 0);
            // Where outputs are added in the order of choices.
            if (of.room > 0 && nodes == 1) {
              EXPECT_EQ(cut.y, whole.y);
              EXPECT_EQ(cut.dx, whole.dx);
            }
            ExpectSame(cut, whole, 80 * 0x1p-53);
          }
        }
      }
    }
  }
}

// The table of docs/experts.md: with a slot less than this, choices are lost,
// in evaluation too, which a capacity does not change.
TEST(ExpertLoads, NeedThisRoom) {
  for (const Load& load : kLoads) {
    SCOPED_TRACE(load.name);
    const CutCase c = CaseOf(load, 0, /*all_counted=*/true);
    const CutCase with_capacity = CaseOf(load, 0.45, /*all_counted=*/true);
    const Counts counts = CountsOf(load, c, 0);
    std::vector<int64_t> of_ranks(4);
    for (const Token& token : counts.passes[0]) {
      for (const int64_t e : token) ++of_ranks[e / 4];
    }
    EXPECT_EQ(of_ranks, load.of_ranks);
    for (const int nodes : {1, 2}) {
      const double room = nodes == 1 ? load.room : load.room_once;
      // A rank has 16 choices for each, or 32 for each of its machine.
      const Layout enough = {4, 1, 4, nodes, room};
      Layout less = enough;
      less.room -= 1.0 / (16 * nodes);
      for (const Layout& of : {enough, less}) {
        std::vector<double> trained;
        for (const bool training : {true, false}) {
          CutOptions options = OptionsOf(of);
          options.training = training;
          options.all_counted = true;
          const CutResult cut = RunCut(training ? c : with_capacity, options);
          if (training) trained = cut.y;
          EXPECT_EQ(cut.y, trained);
          const std::vector<double> lost = LostIn(of, counts, cut);
          EXPECT_EQ(cut.loss.lost,
                    std::accumulate(lost.begin(), lost.end(), 0.0));
          EXPECT_EQ(cut.loss.lost > 0, of.room < room) << nodes;
        }
      }
    }
  }
}

}  // namespace
}  // namespace delink::expert_loads_test
