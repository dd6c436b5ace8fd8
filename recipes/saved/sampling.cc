#include "recipes/saved/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "framework/base/check.h"

namespace delink {
namespace {

// Tokens from the likeliest to the least likely.
std::vector<size_t> Ranking(std::span<const double> logits) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  return order;
}

}  // namespace

std::vector<double> SamplingProbabilities(std::span<const double> logits,
                                          const SamplingOptions& options) {
  DELINK_CHECK(!logits.empty());
  std::vector<double> p(logits.size(), 0.0);
  const std::vector<size_t> order = Ranking(logits);
  if (options.temperature <= 0) {
    p[order[0]] = 1;
    return p;
  }
  size_t kept = order.size();
  if (options.top_k > 0) {
    kept = std::min(kept, static_cast<size_t>(options.top_k));
  }
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    p[order[i]] =
        std::exp((logits[order[i]] - logits[order[0]]) / options.temperature);
    sum += p[order[i]];
  }
  double reached = p[order[0]];
  for (size_t i = 1; i < kept; ++i) {
    if (reached >= options.top_p * sum) {
      p[order[i]] = 0;
    } else {
      reached += p[order[i]];
    }
  }
  for (double& value : p) value /= reached;
  return p;
}

int32_t SampleToken(std::span<const double> logits,
                    const SamplingOptions& options, RngKey key,
                    uint64_t index) {
  const std::vector<double> p = SamplingProbabilities(logits, options);
  const auto words = Philox(key, index, 0);
  const double u = (words[0] * 0x1p32 + words[1]) * 0x1p-64;
  double sum = 0;
  size_t last = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) continue;
    sum += p[i];
    last = i;
    if (u < sum) break;
  }
  // Rounding may leave the sum just under one.
  return static_cast<int32_t>(last);
}

}  // namespace delink
