#include "recipes/saved/token_batches.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr int32_t kNotCounted = -1;

// Lengths are rounded up to it: fewer shapes to plan memory for.
constexpr int64_t kLengthStep = 16;

int64_t Inputs(const ChoiceTokens& sequence) {
  return static_cast<int64_t>(sequence.tokens.size()) - 1;
}

// Whether batch b, or the last one if there are fewer, has another shape than
// the one before it at the same place.
bool NeedsPass(const std::vector<TokenBatch>& batches, int64_t b,
               int64_t places) {
  if (b < places) return true;
  const auto shape = [&](int64_t i) -> const BatchShape& {
    return At(batches, std::min(i, std::ssize(batches) - 1)).shape;
  };
  const BatchShape &now = shape(b), &before = shape(b - places);
  return now.micro_batch != before.micro_batch || now.seq != before.seq;
}

}  // namespace

std::vector<TokenBatch> PlanTokenBatches(
    const std::vector<ChoiceTokens>& sequences, int64_t tokens,
    int64_t positions) {
  std::vector<size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return Inputs(sequences[a]) > Inputs(sequences[b]);
  });
  std::vector<TokenBatch> batches;
  for (size_t first = 0; first < order.size();) {
    const int64_t length = Inputs(sequences[order[first]]);
    const int64_t seq = std::min(
        positions, (length + kLengthStep - 1) / kLengthStep * kLengthStep);
    const auto most = static_cast<size_t>(std::max<int64_t>(1, tokens / seq));
    const size_t count = std::min(most, order.size() - first);
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(first);
    batches.push_back(
        {.sequences = {begin, begin + static_cast<std::ptrdiff_t>(count)},
         .shape = {.micro_batch = static_cast<int64_t>(count), .seq = seq}});
    first += count;
  }
  return batches;
}

HostBatch FillTokenBatch(const std::vector<ChoiceTokens>& sequences,
                         const TokenBatch& batch) {
  const auto tokens = static_cast<size_t>(batch.shape.tokens());
  HostBatch host{.inputs = std::vector<int32_t>(tokens, 0),
                 .targets = std::vector<int32_t>(tokens, kNotCounted),
                 .samples = std::vector<int64_t>(batch.sequences.size())};
  std::iota(host.samples.begin(), host.samples.end(), int64_t{0});
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const ChoiceTokens& one = sequences[batch.sequences[i]];
    const std::vector<int32_t>& from = one.tokens;
    const auto row = static_cast<std::ptrdiff_t>(i) * batch.shape.seq;
    std::copy(from.begin(), from.end() - 1, host.inputs.begin() + row);
    std::copy(from.end() - one.option, from.end(),
              host.targets.begin() + row + Inputs(one) - one.option);
  }
  return host;
}

absl::Status ScoreTokenBatches(SavedModel& saved, const Together& together,
                               const std::vector<ChoiceTokens>& sequences,
                               const ScoreBatch& score) {
  // What fitted in training fits now.
  const Recipe& recipe = saved.recipe();
  const std::vector<TokenBatch> batches =
      PlanTokenBatches(sequences, recipe.run.micro_batch * recipe.data.seq,
                       recipe.model->max_seq);
  const auto count = static_cast<int64_t>(batches.size());
  const int64_t places = together.places;
  std::unique_ptr<ForwardPass> pass;
  for (int64_t b = together.place; b < together.EndOf(count); b += places) {
    const TokenBatch& batch = At(batches, std::min(b, count - 1));
    bool anew = NeedsPass(batches, b, places);
    for (int64_t p = 0; together.gathers() && p < places; ++p) {
      anew = anew || NeedsPass(batches, b - together.place + p, places);
    }
    if (anew) {
      pass.reset();
      auto made = ForwardPass::Create(saved.model(), *together.store,
                                      {.batch = batch.shape,
                                       .by_sequence = true,
                                       .ranks = together.ranks.get()});
      DELINK_RETURN_IF_ERROR(together.Agree(made.status()));
      pass = *std::move(made);
    }
    score(batch, FillTokenBatch(sequences, batch), *pass,
          together.counts() && b < count);
  }
  return together.status();
}

}  // namespace delink
