// What models give a token, from their logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "framework/base/at.h"

namespace delink::testing {

// log softmax(logits)[token].
inline double LogProbability(const std::vector<double>& logits, int32_t token) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - most);
  return At(logits, token) - most - std::log(sum);
}

}  // namespace delink::testing
