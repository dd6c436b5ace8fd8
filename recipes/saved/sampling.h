// From logits to a token: temperature, then top-k, then top-p (nucleus).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/base/rng.h"

namespace delink {

struct SamplingOptions {
  double temperature = 1.0;  // 0: always the likeliest token
  int64_t top_k = 0;         // only the k likeliest; 0: all
  double top_p = 1.0;        // only the likeliest that together reach p
};

// The distribution to sample from; sums to 1. It always keeps the likeliest
// token. Of equally likely tokens, the first counts as likelier.
std::vector<double> SamplingProbabilities(std::span<const double> logits,
                                          const SamplingOptions& options);

// Draw number `index` of the stream `key`.
int32_t SampleToken(std::span<const double> logits,
                    const SamplingOptions& options, RngKey key, uint64_t index);

}  // namespace delink
