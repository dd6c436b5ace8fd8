// Batches of token sequences of similar length, whose last tokens are scored.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "framework/step/engine/host_batch.h"
#include "framework/step/plan/measure.h"
#include "recipes/saved/choices.h"
#include "recipes/saved/forward_pass.h"
#include "recipes/saved/saved_model.h"
#include "recipes/saved/together.h"

namespace delink {

struct TokenBatch {
  std::vector<size_t> sequences;  // which, a row each
  BatchShape shape;
};

// Longest first; each batch has as many sequences as `tokens` allow, of at most
// `positions` tokens each. A pure function of the lengths, so that scores do
// not depend on the number of ranks.
std::vector<TokenBatch> PlanTokenBatches(
    const std::vector<ChoiceTokens>& sequences, int64_t tokens,
    int64_t positions);

// Only the scored targets count.
HostBatch FillTokenBatch(const std::vector<ChoiceTokens>& sequences,
                         const TokenBatch& batch);

// Calls `score` for this rank's share of the batches, each with a pass of its
// shape. A batch has at most as many tokens as a micro-batch of the
// checkpoint's training. Ranks that share the weights have the same share of
// batches; on one of them the results count. Ranks that gather weights together
// have equally many batches: some have one again that does not count.
using ScoreBatch =
    std::function<void(const TokenBatch& batch, const HostBatch& host,
                       ForwardPass& pass, bool counts)>;
absl::Status ScoreTokenBatches(SavedModel& saved, const Together& together,
                               const std::vector<ChoiceTokens>& sequences,
                               const ScoreBatch& score);

}  // namespace delink
