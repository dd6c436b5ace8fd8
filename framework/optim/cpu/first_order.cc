// SGD and Lion on the CPU: bound by memory, so one pass over all planes.
#include "framework/optim/cpu/cpu_kernels.h"
#include "framework/optim/cpu/elementwise.h"

namespace delink::cpu {
namespace {

// kMomentum: there is a plane m.
template <typename T, bool kMomentum>
struct SgdBody {
  GradientScale<T> clip;
  T* m;
  T momentum, decay, step;
  bool nesterov;

  [[gnu::always_inline]] void Run(int64_t begin, int64_t end, T* __restrict p,
                                  const T* __restrict g) const {
    // Copies, which a store through another pointer cannot change.
    const SgdBody b = *this;
    for (int64_t i = begin; i < end; ++i) {
      const T old = p[i - begin];
      const T gi = b.clip(g[i - begin]) + b.decay * old;
      T direction = gi;
      if constexpr (kMomentum) {
        const T mi = b.momentum * b.m[i] + gi;
        b.m[i] = mi;
        direction = b.nesterov ? gi + b.momentum * mi : mi;
      }
      p[i - begin] = old + b.step * direction;
    }
  }
};

template <typename T>
struct LionBody {
  GradientScale<T> clip;
  T* m;
  T beta1, rest1, beta2, rest2, shrink, step;

  [[gnu::always_inline]] void Run(int64_t begin, int64_t end, T* __restrict p,
                                  const T* __restrict g) const {
    const LionBody b = *this;
    for (int64_t i = begin; i < end; ++i) {
      const T gi = b.clip(g[i - begin]);
      const T mi = b.m[i];
      const T way = mi * b.beta1 + gi * b.rest1;
      b.m[i] = mi * b.beta2 + gi * b.rest2;
      const T size = way > 0 ? b.step : way < 0 ? -b.step : T{0};
      p[i - begin] = p[i - begin] * b.shrink + size;
    }
  }
};

template <typename T, bool kMomentum>
void RunSgd(Stream& stream, const SgdArgs& a) {
  const UpdatedParams& params = a.params;
  const UpdateControl& control = *params.control;
  RunUpdate<T>(stream,
               SgdBody<T, kMomentum>{
                   .clip = GradientScale<T>(control),
                   .m = static_cast<T*>(a.m),
                   .momentum = static_cast<T>(a.momentum),
                   .decay = static_cast<T>(params.decay),
                   .step = static_cast<T>(-(control.lr * params.lr_scale)),
                   .nesterov = a.nesterov},
               params);
}

}  // namespace

template <typename T>
void Sgd(Stream& stream, const SgdArgs& a) {
  if (a.params.control->skip != 0) return;
  if (a.m != nullptr) {
    RunSgd<T, true>(stream, a);
  } else {
    RunSgd<T, false>(stream, a);
  }
}

template <typename T>
void Lion(Stream& stream, const LionArgs& a) {
  const UpdatedParams& params = a.params;
  const UpdateControl& control = *params.control;
  if (control.skip != 0) return;
  const double lr = control.lr * params.lr_scale;
  RunUpdate<T>(stream,
               LionBody<T>{.clip = GradientScale<T>(control),
                           .m = static_cast<T*>(a.m),
                           .beta1 = static_cast<T>(a.beta1),
                           .rest1 = static_cast<T>(1 - a.beta1),
                           .beta2 = static_cast<T>(a.beta2),
                           .rest2 = static_cast<T>(1 - a.beta2),
                           .shrink = static_cast<T>(1 - lr * params.decay),
                           .step = static_cast<T>(-lr)},
               params);
}

template <typename T>
void BalanceBias(Stream&, const BalanceBiasArgs& a) {
  if (a.control->skip != 0) return;
  T* const bias = static_cast<T*>(a.bias);
  for (int64_t i = 0; i < a.n; ++i) bias[i] = a.After(i, bias[i]);
}

DELINK_OPTIM_INSTANTIATE(BalanceBias, BalanceBiasArgs);
DELINK_OPTIM_INSTANTIATE(Sgd, SgdArgs);
DELINK_OPTIM_INSTANTIATE(Lion, LionArgs);

}  // namespace delink::cpu
