// The embedding and the head, whose tables are cut over ranks by tokens,
// against the same on one rank.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/base/at.h"
#include "layers/modules/embedding.h"
#include "layers/modules/lm_head.h"
#include "tests/layers/modules/expect_cut.h"
#include "tests/testing/cut_layer.h"
#include "tests/testing/documents.h"
#include "tests/testing/numbers.h"

namespace delink::cut_vocabulary_test {
namespace {

using testing::CutCase;
using testing::LayerOf;
using testing::MemoryMode;
using testing::RunCut;
using testing::VisitRunner;

constexpr int64_t kB = 2, kT = 6, kD = 16;

// Primes; one token for each rank, and fewer than ranks.
constexpr int64_t kVocabularies[] = {13, 101, 4, 3};

// Sums are of up to a hundred terms, whose roundings wander: each is off by
// about ten of them. Four are behind each other: logits, exponentials, and
// either gradient.
constexpr double kSums = 4 * 10;

void ExpectCut(const CutCase& c) { testing::ExpectCut(c, kSums); }

CutCase EmbeddingCase(const Embedding::Config& config) {
  return {
      .build = LayerOf<Embedding>(config),
      .B = kB,
      .T = kT,
      .D = kD,
      .tokens = testing::Integers("tokens", kB * kT,
                                  static_cast<int32_t>(config.vocab)),
      .positions = testing::Positions(kB, kT, {kT}),
  };
}

TEST(CutVocabulary, OfAnEmbedding) {
  for (const int64_t vocab : kVocabularies) {
    for (const int64_t positions : {int64_t{0}, kT + 1}) {
      SCOPED_TRACE(::testing::Message()
                   << vocab << " tokens, " << positions << " positions");
      CutCase c = EmbeddingCase(
          {.vocab = vocab, .dim = kD, .positions = positions, .dropout = 0.3});
      ExpectCut(c);
      c.positions = testing::Positions(kB, kT, {4, 1, 3});
      ExpectCut(c);
    }
  }
}

// Where all ranks have all rows positions need not be given.
TEST(CutVocabulary, OfAnEmbeddingThatCountsPositions) {
  CutCase c = EmbeddingCase({.vocab = 13, .dim = kD, .positions = kT});
  c.positions.clear();
  ExpectSame(RunCut(c, {.ranks = 2, .memory = MemoryMode::kPlanned}),
             RunCut(c, {}), kSums * 0x1p-53);
}

// The loss, or the logits, of LmHead.
CutCase HeadCase(const LmHead::Config& config, bool loss) {
  std::vector<int32_t> targets =
      testing::Integers("targets", kB * kT, static_cast<int32_t>(config.vocab));
  for (size_t i = 1; i < targets.size(); i += 4) targets[i] = -1;
  return {.build = [config, loss](const Scope& s) -> VisitRunner::Layer {
            const auto head = std::make_shared<LmHead>(s, config);
            if (!loss) return [head](Var x) { return head->Logits(x); };
            return [head](Var x) {
              head->Loss(x);
              return Var();
            };
          },
          .B = kB,
          .T = kT,
          .D = kD,
          .loss = loss,
          .targets = targets};
}

TEST(CutVocabulary, OfALoss) {
  for (const int64_t vocab : kVocabularies) {
    for (const double z_loss : {0.0, 0.3}) {
      SCOPED_TRACE(::testing::Message()
                   << vocab << " tokens, z-loss " << z_loss);
      ExpectCut(HeadCase({.dim = kD, .vocab = vocab, .z_loss = z_loss}, true));
    }
  }
}

// Many rows of many logits: several chunks, over whose edges no rank goes
// alone.
TEST(CutVocabulary, OfALossInChunks) {
  CutCase c = HeadCase({.dim = 4, .vocab = 8195, .z_loss = 1e-3}, true);
  c.B = 4;
  c.T = 150;
  c.D = 4;
  c.targets = testing::Integers("targets", c.B * c.T, 8195);
  const auto whole = RunCut(c, {});
  for (const bool sequence : {false, true}) {
    ExpectSame(RunCut(c, {.ranks = 2,
                          .sequence = sequence,
                          .memory = MemoryMode::kPlanned}),
               whole, 10 * kSums * 0x1p-53);
  }
}

TEST(CutVocabulary, OfLogits) {
  for (const int64_t vocab : kVocabularies) {
    SCOPED_TRACE(vocab);
    const CutCase c = HeadCase({.dim = kD, .vocab = vocab}, false);
    const auto whole = RunCut(c, {});
    for (const int ranks : {2, 4}) {
      ExpectSame(RunCut(c, {.ranks = ranks, .memory = MemoryMode::kPlanned}),
                 whole, kSums * 0x1p-53);
    }
  }
}

TEST(CutVocabulary, InTheTypesOfRuns) {
  const CutCase cases[] = {
      EmbeddingCase({.vocab = 13, .dim = kD, .positions = kT, .dropout = 0.3}),
      HeadCase({.dim = kD, .vocab = 101, .z_loss = 1e-2}, true)};
  // Of bf16 the norm, the logits, their gradients and those of the input are
  // rounded behind each other, and the sum over ranks.
  for (const CutCase& c : cases) {
    testing::ExpectCutInTypesOfRuns(c, kSums, 8);
  }
}

}  // namespace
}  // namespace delink::cut_vocabulary_test
