// AdamW on the CPU: bound by memory, so one pass over p, g, m, v and w.
#include "framework/optim/cpu/adamw.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "framework/optim/cpu/cpu_kernels.h"
#include "framework/optim/cpu/traffic.h"
#include "framework/optim/find_kernels.h"

namespace delink::cpu {
namespace {

template <typename T>
struct Body {
  AdamWStep<T> step;
  T* m;
  T* v;

  [[gnu::always_inline]] void Run(int64_t begin, int64_t end, T* __restrict p,
                                  const T* __restrict g) const {
    const AdamWStep<T> s = step;
    T* __restrict const first = m;
    T* __restrict const second = v;
    for (int64_t i = begin; i < end; ++i) {
      T pi = p[i - begin], mi = first[i], vi = second[i];
      s(pi, g[i - begin], mi, vi);
      first[i] = mi;
      second[i] = vi;
      p[i - begin] = pi;
    }
  }
};

template <typename T>
void Run(const Way& way, const AdamWArgs& a) {
  if (a.control->skip != 0) return;
  const bool plain =
      a.master == MasterForm::kWhole && a.moments == StateStorage::kExact;
  constexpr bool kTiles = std::is_same_v<T, float>;
  if (!plain || (kTiles && way.traffic != Traffic::kCaches)) {
    DELINK_CHECK(kTiles);
    return AdamWInTiles(way, a);
  }
  RunUpdateBy<T>(way.set, way.pool,
                 Body<T>{.step = AdamWStep<T>(a),
                         .m = static_cast<T*>(a.m),
                         .v = static_cast<T*>(a.v)},
                 {.p = a.p, .w = a.w, .g = a.g, .bf16_g = a.bf16_g, .n = a.n});
}

}  // namespace

template <typename T>
void AdamW(Stream& stream, const AdamWArgs& args) {
  static const Instructions best = BestInstructions();
  static const Traffic large =
      StoresPastCachesPay() ? Traffic::kPastCaches : Traffic::kMemory;
  Run<T>({.set = best,
          .pool = PoolOf(stream),
          .traffic = args.n >= kInMemoryFrom ? large : Traffic::kCaches},
         args);
}

DELINK_OPTIM_INSTANTIATE(AdamW, AdamWArgs);

bool AdamWF32With(int instructions, const AdamWArgs& args, int traffic) {
  const auto set = static_cast<Instructions>(instructions);
  if (!Has(set)) return false;
  Run<float>({.set = set, .traffic = static_cast<Traffic>(traffic)}, args);
  return true;
}

}  // namespace delink::cpu
