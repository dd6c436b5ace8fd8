// Blocks of gpt and llama cut over ranks, and whole models, against the same on
// one rank.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "framework/module/sequential.h"
#include "recipes/models/gpt.h"
#include "recipes/models/llama.h"
#include "tests/recipes/models/model_checks.h"
#include "tests/testing/cut_layer.h"
#include "tests/testing/documents.h"
#include "tests/testing/numbers.h"

namespace delink::cut_test {
namespace {

using testing::CutCase;
using testing::CutOptions;
using testing::MemoryMode;
using testing::RunCut;

constexpr int64_t kB = 2, kT = 12, kD = 16;

GptConfig Gpt(int64_t kv_heads) {
  return testing::Sized<GptConfig>(
      {.max_seq = kT, .dim = kD, .kv_heads = kv_heads, .ffn = 24});
}

// Queries and keys are normalised, a token sees five, and widths of heads are
// not those of the stream over their number.
LlamaConfig Llama(int64_t kv_heads) {
  auto c =
      testing::Sized<LlamaConfig>({.dim = kD, .kv_heads = kv_heads, .ffn = 20});
  c.head_dim = 6;
  c.qk_norm = true;
  c.qkv_bias = true;
  c.window = 5;
  return c;
}

CutCase CaseOf(const testing::ModelRunner::Build& build) {
  return {.build = testing::BlocksOf(build), .B = kB, .T = kT, .D = kD};
}

struct Case {
  std::string name;
  CutCase blocks;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const int64_t kv_heads : {1, 2, 4}) {
    const std::string heads = std::to_string(kv_heads) + " key heads";
    for (const double dropout : {0.0, 0.3}) {
      GptConfig gpt = Gpt(kv_heads);
      gpt.dropout = dropout;
      cases.push_back({"gpt, " + heads, CaseOf([gpt](const Scope& s) {
                         return BuildGpt(s, gpt);
                       })});
    }
    const LlamaConfig llama = Llama(kv_heads);
    cases.push_back({"llama, " + heads, CaseOf([llama](const Scope& s) {
                       return BuildLlama(s, llama);
                     })});
  }
  for (const size_t i : {0, 1, 2}) {
    Case masked = cases[i];
    masked.name += ", masked";
    masked.blocks.positions = testing::Positions(kB, kT, {5, 1, 4});
    masked.blocks.documents = masked.blocks.positions;
    cases.push_back(masked);
  }
  return cases;
}

void ExpectCut(const CutCase& blocks, const CutOptions& options,
               double tolerance) {
  SCOPED_TRACE(::testing::Message()
               << options.ranks << " ranks of " << ToString(options.dtype)
               << ", sequence " << options.sequence << ", halves "
               << options.halves << ", remake " << options.remake);
  ExpectSame(RunCut(blocks, options), RunCut(blocks, {}), tolerance);
}

// Two blocks are some twenty sums behind each other, of up to a hundred terms,
// whose roundings wander: each sum is off by about ten of them. Norms and
// softmax hand that on with factors near 1.
constexpr double kSums = 20 * 10;

// From tokens to the loss. 11 tokens are three, or two, on a rank.
CutCase LossCaseOf(const testing::ModelRunner::Build& build) {
  std::vector<int32_t> targets = testing::Integers("targets", kB * kT, 11);
  targets[3] = targets[kT] = -1;
  return {.build = testing::LossOf(build),
          .B = kB,
          .T = kT,
          .D = kD,
          .loss = true,
          .tokens = testing::Integers("tokens", kB * kT, 11),
          .targets = targets,
          .positions = testing::Positions(kB, kT, {kT})};
}

std::vector<Case> Losses() {
  std::vector<Case> cases;
  for (const bool tied : {false, true}) {
    for (const double dropout : {0.0, 0.3}) {
      GptConfig gpt = Gpt(2);
      gpt.tied = tied;
      gpt.dropout = dropout;
      cases.push_back({"gpt", LossCaseOf([gpt](const Scope& s) {
                         return BuildGpt(s, gpt);
                       })});
    }
    LlamaConfig llama = Llama(1);
    llama.tied = tied;
    llama.z_loss = 1e-2;
    cases.push_back({"llama", LossCaseOf([llama](const Scope& s) {
                       return BuildLlama(s, llama);
                     })});
    cases.back().name += ", masked";
    cases.back().blocks.positions = testing::Positions(kB, kT, {5, 1, 4});
    cases.back().blocks.documents = cases.back().blocks.positions;
    for (size_t i = cases.size() - 3; tied && i < cases.size(); ++i) {
      cases[i].name += ", tied";
    }
  }
  return cases;
}

// `sums`: how many roundings a sum is off by, as above; of bf16 `rounded` times
// 2^-9.
void ExpectCutWays(const std::vector<Case>& cases, double sums,
                   double rounded) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    for (const bool sequence : {false, true}) {
      for (const bool also : {false, true}) {
        for (const int ranks : {2, 4}) {
          ExpectCut(c.blocks,
                    {.ranks = ranks,
                     .sequence = sequence,
                     .memory = MemoryMode::kPlanned,
                     .halves = also,
                     .remake = also},
                    sums * 0x1p-53);
        }
      }
      CutOptions options = {.ranks = 4,
                            .sequence = sequence,
                            .dtype = DType::kF32,
                            .memory = MemoryMode::kPlanned};
      ExpectCut(c.blocks, options, sums * 0x1p-24);
      options.dtype = DType::kBF16;
      ExpectCut(c.blocks, options, rounded * 0x1p-9);
    }
  }
}

// Of each row a rank has some tokens, beside its part of the weights or not.
void ExpectCutRows(const std::vector<Case>& cases, int context, double sums) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    for (const bool sequence : {false, true}) {
      ExpectCut(c.blocks,
                {.ranks = 2,
                 .sequence = sequence,
                 .context = context,
                 .memory = MemoryMode::kPlanned,
                 .halves = sequence},
                sums * 0x1p-53);
    }
    ExpectCut(c.blocks, {.context = context, .memory = MemoryMode::kPlanned},
              sums * 0x1p-53);
  }
}

// Some fifteen activations behind each other are rounded on the way to an
// output, as many on the way back, each by up to 2^-9.
TEST(CutBlocks, AreTheWholeOnes) { ExpectCutWays(Cases(), kSums, 30); }

TEST(CutBlocks, AreTheWholeOnesOverPartsOfRows) {
  ExpectCutRows(Cases(), 3, kSums);
}

// As for the blocks, and what is before and behind them: four more.
TEST(CutModels, HaveTheLossOfTheWhole) {
  ExpectCutWays(Losses(), 2 * kSums, 38);
}

TEST(CutModels, HaveTheLossOfTheWholeOverPartsOfRows) {
  ExpectCutRows(Losses(), 2, 2 * kSums);
}

}  // namespace
}  // namespace delink::cut_test
