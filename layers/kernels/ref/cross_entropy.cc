#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "layers/kernels/ref/ref.h"

namespace delink::ref {

template <typename T>
void CrossEntropy(Stream&, const CrossEntropyArgs& s) {
  for (int64_t n = 0; n < s.N; ++n) {
    T* logits = static_cast<T*>(s.logits) + n * s.ld;
    const int32_t target = s.targets[n];
    if (target == s.ignore_index) {
      s.row_loss[n] = 0.0;
      if (s.z_weight != 0) s.row_z[n] = 0.0;
      if (s.want_grad) std::fill(logits, logits + s.V, T{});
      continue;
    }
    const double max = *std::max_element(logits, logits + s.V);
    double sum = 0.0;
    for (int64_t v = 0; v < s.V; ++v) sum += std::exp(logits[v] - max);
    const double lse = std::log(sum) + max;
    s.row_loss[n] = lse - logits[target];
    *s.loss_sum += s.row_loss[n];
    *s.count += 1;
    if (s.z_weight != 0) {
      s.row_z[n] = s.z_weight * lse * lse;
      *s.z_sum += s.row_z[n];
    }
    // d lse / d logit is p too.
    const double scale = 1.0 + 2.0 * s.z_weight * lse;
    if (!s.want_grad) continue;
    for (int64_t v = 0; v < s.V; ++v) {
      const double p = scale * std::exp(logits[v] - max) / sum;
      logits[v] = static_cast<T>(v == target ? p - 1.0 : p);
    }
  }
}

template <typename T>
void VocabMax(Stream&, const VocabMaxArgs& s) {
  for (int64_t n = 0; n < s.N; ++n) {
    const T* logits = static_cast<const T*>(s.logits) + n * s.ld;
    double max = double{std::numeric_limits<float>::lowest()};
    for (int64_t v = 0; v < s.V; ++v) max = std::max(max, double{logits[v]});
    s.max[n] = max;
  }
}

template <typename T>
void VocabSums(Stream&, const VocabSumsArgs& s) {
  for (int64_t n = 0; n < s.N; ++n) {
    const T* logits = static_cast<const T*>(s.logits) + n * s.ld;
    const int64_t target = s.targets[n] - s.first_token;
    double sum = 0.0, of_target = 0.0;
    if (s.targets[n] != s.ignore_index) {
      for (int64_t v = 0; v < s.V; ++v) sum += std::exp(logits[v] - s.max[n]);
      if (target >= 0 && target < s.V) of_target = logits[target];
    }
    s.sums[n] = sum;
    s.sums[s.N + n] = of_target;
  }
}

template <typename T>
void VocabCrossEntropy(Stream&, const VocabCrossEntropyArgs& s) {
  for (int64_t n = 0; n < s.N; ++n) {
    T* logits = static_cast<T*>(s.logits) + n * s.ld;
    if (s.targets[n] == s.ignore_index) {
      s.row_loss[n] = 0.0;
      if (s.z_weight != 0) s.row_z[n] = 0.0;
      if (s.want_grad) std::fill(logits, logits + s.V, T{});
      continue;
    }
    const int64_t target = s.targets[n] - s.first_token;
    const double max = s.max[n], sum = s.sums[n];
    const double lse = std::log(sum) + max;
    s.row_loss[n] = lse - s.sums[s.N + n];
    if (s.z_weight != 0) s.row_z[n] = s.z_weight * lse * lse;
    if (s.counts) {
      *s.loss_sum += s.row_loss[n];
      *s.count += 1;
      if (s.z_weight != 0) *s.z_sum += s.row_z[n];
    }
    const double scale = 1.0 + 2.0 * s.z_weight * lse;
    for (int64_t v = 0; s.want_grad && v < s.V; ++v) {
      const double p = scale * std::exp(logits[v] - max) / sum;
      logits[v] = static_cast<T>(v == target ? p - 1.0 : p);
    }
  }
}

#define DELINK_INSTANTIATE(T)                                      \
  template void CrossEntropy<T>(Stream&, const CrossEntropyArgs&); \
  template void VocabMax<T>(Stream&, const VocabMaxArgs&);         \
  template void VocabSums<T>(Stream&, const VocabSumsArgs&);       \
  template void VocabCrossEntropy<T>(Stream&, const VocabCrossEntropyArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(double)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::ref
