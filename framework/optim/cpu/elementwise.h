// Private to framework/optim/cpu: common code of elementwise updates.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>

#include "framework/base/check.h"
#include "framework/optim/arguments.h"
#include "framework/optim/cpu/by_instructions.h"
#include "framework/optim/cpu/masters.h"

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

// Stores values of a tile in a plane, through the caches.
struct PlainStore {
  Instructions set;

  template <typename T>
  [[gnu::always_inline]] void operator()(void* plane, int64_t at, int64_t n,
                                         const T* values) const {
    std::memcpy(static_cast<T*>(plane) + at, values,
                static_cast<size_t>(n) * sizeof(T));
  }
};

// A Body that calls inner.Run(begin, end, p, g) for ranges of elements: it
// updates the parameters p[0], ... of elements [begin, end) in place from their
// gradient g[0], .... Where a.g is null, g is too.
template <typename T, typename Inner>
struct UpdateBody {
  Inner inner;
  UpdatedParams a;
  Instructions set;

  [[gnu::always_inline]] void operator()(int64_t begin, int64_t end) const {
    const Gradient<T> gradient = {a.g, a.bf16_g};
    const auto plain = [&](int64_t at) {
      return a.g != nullptr ? gradient.plain() + at : nullptr;
    };
    T* const whole = static_cast<T*>(a.p);
    if constexpr (!std::is_same_v<T, float>) {
      return inner.Run(begin, end, whole + begin, plain(begin));
    } else {
      const bool is_whole = a.master == MasterForm::kWhole;
      if (is_whole && a.w == nullptr && !gradient.narrow) {
        return inner.Run(begin, end, whole + begin, plain(begin));
      }
      auto* const w = static_cast<BFloat16*>(a.w);
      T g_tile[kTile], p_tile[kTile];
      for (int64_t at = begin; at < end; at += kTile) {
        const int64_t n = end - at < kTile ? end - at : kTile;
        if (gradient.narrow) gradient.Load(at, n, g_tile, std::identity());
        T* const p = is_whole ? whole + at : p_tile;
        if (!is_whole) LoadParams(a, at, n, p);
        inner.Run(at, at + n, p, gradient.narrow ? g_tile : plain(at));
        if (!is_whole) {
          StoreParams(a, at, n, p, PlainStore{set});
        } else if (w != nullptr) {
          for (int64_t i = 0; i < n; ++i) w[at + i] = Rounded(p[i]);
        }
      }
    }
  }
};
static_assert(kElementsAtOnce % kTile == 0);

template <typename T, typename Inner>
void RunUpdateBy(Instructions set, ThreadPool* pool, const Inner& inner,
                 const UpdatedParams& params) {
  constexpr bool kOnlyWhole = !std::is_same_v<T, float>;
  DELINK_CHECK(!kOnlyWhole ||
               (params.w == nullptr && params.master == MasterForm::kWhole))
      << "bf16 weights of f64 parameters";
  RunElementsBy(set, pool,
                UpdateBody<T, Inner>{.inner = inner, .a = params, .set = set},
                params.n);
}
// The same with the best instructions of the machine.
template <typename T, typename Inner>
void RunUpdate(Stream& stream, const Inner& inner,
               const UpdatedParams& params) {
  static const Instructions best = BestInstructions();
  RunUpdateBy<T>(best, PoolOf(stream), inner, params);
}

}  // namespace delink::cpu
