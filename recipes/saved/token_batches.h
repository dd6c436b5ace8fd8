// Sequences of tokens of which the last are scored, computed together where
// they are of similar length.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "framework/step/host_batch.h"
#include "framework/step/measure.h"
#include "recipes/saved/choices.h"
#include "recipes/saved/forward_pass.h"
#include "recipes/saved/saved_model.h"
#include "recipes/saved/together.h"

namespace delink {

struct TokenBatch {
  std::vector<size_t> sequences;  // which, a row each
  BatchShape shape;
};

// Longest first, as many at once as `tokens` allow, of at most `positions`
// each. A pure function of the lengths, so that scores do not depend on the
// number of ranks.
std::vector<TokenBatch> PlanTokenBatches(
    const std::vector<ChoiceTokens>& sequences, int64_t tokens,
    int64_t positions);

// The targets that count are those that are scored.
HostBatch FillTokenBatch(const std::vector<ChoiceTokens>& sequences,
                         const TokenBatch& batch);

// Hands this rank's share of the batches to `score`, each with a pass of its
// shape; as many tokens at once as the checkpoint was trained with. Ranks that
// have the weights together have the same share, and what comes of it counts on
// one of them (Together::counts).
using ScoreBatch = std::function<void(
    const TokenBatch& batch, const HostBatch& host, ForwardPass& pass)>;
absl::Status ScoreTokenBatches(SavedModel& saved, const Together& together,
                               const std::vector<ChoiceTokens>& sequences,
                               const ScoreBatch& score);

}  // namespace delink
