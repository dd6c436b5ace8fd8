// Private to framework/optim/cpu: AdamW's step on one element, for all forms of
// parameters and moments.
#pragma once

#include <cmath>

#include "framework/optim/cpu/elementwise.h"
#include "framework/optim/cpu/traffic.h"

namespace delink::cpu {

template <typename T>
struct AdamWStep {
  GradientScale<T> clip;
  T shrink;
  T beta1, rest1;
  T beta2, rest2;
  T root2;  // sqrt(1 - beta2^t)
  T eps;
  T step;  // -lr / (1 - beta1^t)

  explicit AdamWStep(const AdamWArgs& a)
      : clip(*a.control),
        shrink(static_cast<T>(1 - Rate(a) * a.decay)),
        beta1(static_cast<T>(a.beta1)),
        rest1(static_cast<T>(1 - a.beta1)),
        beta2(static_cast<T>(a.beta2)),
        rest2(static_cast<T>(1 - a.beta2)),
        root2(static_cast<T>(std::sqrt(1 - PowerOf(a.beta2, a.update)))),
        eps(static_cast<T>(a.eps)),
        step(static_cast<T>(-(Rate(a) / (1 - PowerOf(a.beta1, a.update))))) {}

  [[gnu::always_inline]] void operator()(T& p, T g, T& m, T& v) const {
    const T gi = clip(g);
    m = m * beta1 + gi * rest1;
    v = v * beta2 + rest2 * gi * gi;
    p = p * shrink + step * m / (std::sqrt(v) / root2 + eps);
  }

 private:
  static double Rate(const AdamWArgs& a) { return a.control->lr * a.lr_scale; }
  static double PowerOf(double beta, int64_t t) {
    return std::pow(beta, static_cast<double>(t));
  }
};

// How a step is executed; its result does not depend on this.
struct Way {
  Instructions set;
  ThreadPool* pool = nullptr;  // null: OpenMP's threads
  Traffic traffic = Traffic::kCaches;
};

// The step for all forms of parameters and moments, a tile at a time.
void AdamWInTiles(const Way& way, const AdamWArgs& args);

}  // namespace delink::cpu
