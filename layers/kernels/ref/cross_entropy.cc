#include <algorithm>
#include <cmath>
#include <cstdint>

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

template void CrossEntropy<float>(Stream&, const CrossEntropyArgs&);
template void CrossEntropy<double>(Stream&, const CrossEntropyArgs&);
template void CrossEntropy<BFloat16>(Stream&, const CrossEntropyArgs&);

}  // namespace delink::ref
