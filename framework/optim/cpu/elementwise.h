// Private to framework/optim/cpu: common code of elementwise updates.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
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

// Elements of a gradient that are widened at a time.
inline constexpr int64_t kGradientTile = 512;

// A gradient of the arguments: T or, if T is float, also bf16.
template <typename T>
struct Gradient {
  const void* g;
  bool narrow;

  const T* plain() const { return static_cast<const T*>(g); }

  // tile[i] = number(element begin + i) for i < n.
  template <typename Number>
  [[gnu::always_inline]] void Load(int64_t begin, int64_t n, T* tile,
                                   const Number& number) const {
    if constexpr (std::is_same_v<T, float>) {
      if (narrow) {
        const auto* const from = static_cast<const uint16_t*>(g) + begin;
        for (int64_t i = 0; i < n; ++i) {
          tile[i] = number(std::bit_cast<float>(uint32_t{from[i]} << 16));
        }
        return;
      }
    }
    const T* const from = plain() + begin;
    for (int64_t i = 0; i < n; ++i) tile[i] = number(from[i]);
  }
};

// A Body that calls inner.Run(begin, end, g), where g[0] is the gradient of
// element `begin`.
template <typename T, typename Inner>
struct WithGradient {
  Inner inner;
  Gradient<T> gradient;

  [[gnu::always_inline]] void operator()(int64_t begin, int64_t end) const {
    if (!gradient.narrow) {
      return inner.Run(begin, end, gradient.plain() + begin);
    }
    T tile[kGradientTile];
    for (int64_t at = begin; at < end; at += kGradientTile) {
      const int64_t n = end - at < kGradientTile ? end - at : kGradientTile;
      gradient.Load(at, n, tile, std::identity());
      inner.Run(at, at + n, tile);
    }
  }
};

// W is BFloat16, or void if there are no rounded weights to write.
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

// run(Target): with rounded weights if the arguments have them.
template <typename T, typename Run>
void WithTarget(const UpdatedParams& a, Run run) {
  if constexpr (std::is_same_v<T, float>) {
    if (a.w != nullptr) return run(Target<float, BFloat16>(a));
  }
  DELINK_CHECK(a.w == nullptr) << "rounded weights of f64 parameters";
  run(Target<T, void>(a));
}

}  // namespace delink::cpu
