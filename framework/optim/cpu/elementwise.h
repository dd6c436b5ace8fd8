// Private to framework/optim/cpu: what elementwise updates have in common.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "framework/base/check.h"
#include "framework/optim/arguments.h"
#include "framework/optim/cpu/by_instructions.h"

namespace delink::cpu {

// g' of the arguments' contract.
template <typename T>
struct GradientScale {
  T scale, limit;

  explicit GradientScale(const UpdateControl& control)
      : scale(static_cast<T>(control.clip_factor)),
        limit(control.clip_value > 0 ? static_cast<T>(control.clip_value)
                                     : std::numeric_limits<T>::infinity()) {}

  [[gnu::always_inline]] T operator()(T g) const {
    const T scaled = g * scale;
    const T low = scaled < -limit ? -limit : scaled;
    return low > limit ? limit : low;
  }
};

// W is BFloat16, or void where there are no rounded weights to write.
template <typename T, typename W>
struct Target {
  T* p;
  BFloat16* w;

  explicit Target(const UpdatedParams& a)
      : p(static_cast<T*>(a.p)), w(static_cast<BFloat16*>(a.w)) {}

  [[gnu::always_inline]] void Store(int64_t i, T value) const {
    p[i] = value;
    if constexpr (!std::is_void_v<W>) w[i] = Rounded(value);
  }
};

// run(Target): with rounded weights where the arguments have some.
template <typename T, typename Run>
void WithTarget(const UpdatedParams& a, Run run) {
  if constexpr (std::is_same_v<T, float>) {
    if (a.w != nullptr) return run(Target<float, BFloat16>(a));
  }
  DELINK_CHECK(a.w == nullptr) << "rounded weights of f64 parameters";
  run(Target<T, void>(a));
}

}  // namespace delink::cpu
