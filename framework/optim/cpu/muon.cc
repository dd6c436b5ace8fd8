// Muon's passes over memory on the CPU; layers' kernels multiply matrices.
#include <algorithm>
#include <cmath>

#include "framework/optim/cpu/cpu_kernels.h"
#include "framework/optim/cpu/elementwise.h"

namespace delink::cpu {
namespace {

template <typename T>
struct MomentumBody {
  GradientScale<T> clip;
  T* m;
  T* u;
  T momentum, rest;
  bool nesterov;

  [[gnu::always_inline]] void Run(int64_t begin, int64_t end,
                                  const T* g) const {
    const MomentumBody b = *this;
    for (int64_t i = begin; i < end; ++i) {
      const T part = b.rest * b.clip(g[i - begin]);
      const T mi = b.momentum * b.m[i] + part;
      b.m[i] = mi;
      b.u[i] = b.nesterov ? part + b.momentum * mi : mi;
    }
  }
};

// Elements of X are stored as T or, narrow, as BFloat16.
template <typename T>
[[gnu::always_inline]] inline void Put(T* to, T value) {
  *to = value;
}
[[gnu::always_inline]] inline void Put(BFloat16* to, float value) {
  *to = Rounded(value);
}

template <typename T, typename X>
struct NormalizeBody {
  const T* u;
  X* x;
  T scale;

  [[gnu::always_inline]] void operator()(int64_t begin, int64_t end) const {
    const NormalizeBody b = *this;
    for (int64_t i = begin; i < end; ++i) Put(b.x + i, b.u[i] * b.scale);
  }
};

template <typename T, typename X>
struct ScaleAddBody {
  const X* x;
  X* y;
  T a, b;

  [[gnu::always_inline]] void operator()(int64_t begin, int64_t end) const {
    const ScaleAddBody s = *this;
    for (int64_t i = begin; i < end; ++i) {
      Put(s.y + i, s.a * T{s.x[i]} + s.b * T{s.y[i]});
    }
  }
};

template <typename T, typename X>
struct StepBody {
  const X* x;
  T shrink, step;

  [[gnu::always_inline]] void Run(int64_t begin, int64_t end, T* __restrict p,
                                  const T*) const {
    const StepBody b = *this;
    for (int64_t i = begin; i < end; ++i) {
      p[i - begin] = p[i - begin] * b.shrink + b.step * T{b.x[i]};
    }
  }
};

// run(X*): the type in which a matrix is made orthogonal.
template <typename T, typename Run>
void WithType(bool narrow, Run run) {
  if constexpr (std::is_same_v<T, float>) {
    if (narrow) return run(static_cast<BFloat16*>(nullptr));
  }
  DELINK_CHECK(!narrow) << "bf16 beside f64";
  run(static_cast<T*>(nullptr));
}

}  // namespace

template <typename T>
void MuonMomentum(Stream& stream, const MuonMomentumArgs& a) {
  if (a.control->skip != 0) {
    if (a.u != a.g) std::fill_n(static_cast<T*>(a.u), a.n, T{0});
    return;
  }
  const MomentumBody<T> body{.clip = GradientScale<T>(*a.control),
                             .m = static_cast<T*>(a.m),
                             .u = static_cast<T*>(a.u),
                             .momentum = static_cast<T>(a.momentum),
                             .rest = static_cast<T>(1 - a.momentum),
                             .nesterov = a.nesterov};
  RunElements(stream,
              WithGradient<T, MomentumBody<T>>{.inner = body,
                                               .gradient = {a.g, a.bf16_g}},
              a.n);
}

template <typename T>
void MuonNormalize(Stream& stream, const MuonNormalizeArgs& a) {
  double squares = 0;
  for (int64_t i = 0; i < a.count; ++i) squares += a.sums[i];
  *a.scale = 1 / std::max(std::sqrt(squares), 1e-7);
  WithType<T>(a.narrow, [&]<typename X>(X*) {
    RunElements(stream,
                NormalizeBody<T, X>{.u = static_cast<const T*>(a.u),
                                    .x = static_cast<X*>(a.x),
                                    .scale = static_cast<T>(*a.scale)},
                a.n);
  });
}

template <typename T>
void ScaleAdd(Stream& stream, const ScaleAddArgs& a) {
  WithType<T>(a.narrow, [&]<typename X>(X*) {
    RunElements(stream,
                ScaleAddBody<T, X>{.x = static_cast<const X*>(a.x),
                                   .y = static_cast<X*>(a.y),
                                   .a = static_cast<T>(a.a),
                                   .b = static_cast<T>(a.b)},
                a.n);
  });
}

template <typename T>
void MuonStep(Stream& stream, const MuonStepArgs& a) {
  UpdatedParams params = a.params;
  if (params.control->skip != 0) return;
  params.g = nullptr;
  params.bf16_g = false;
  const double lr = params.control->lr * params.lr_scale;
  WithType<T>(a.narrow, [&]<typename X>(X*) {
    RunUpdate<T>(stream,
                 StepBody<T, X>{.x = static_cast<const X*>(a.x),
                                .shrink = static_cast<T>(1 - lr * params.decay),
                                .step = static_cast<T>(-(lr * a.factor))},
                 params);
  });
}

DELINK_OPTIM_INSTANTIATE(MuonMomentum, MuonMomentumArgs);
DELINK_OPTIM_INSTANTIATE(MuonNormalize, MuonNormalizeArgs);
DELINK_OPTIM_INSTANTIATE(ScaleAdd, ScaleAddArgs);
DELINK_OPTIM_INSTANTIATE(MuonStep, MuonStepArgs);

}  // namespace delink::cpu
