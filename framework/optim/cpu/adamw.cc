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

// W is BFloat16, or void if there are no rounded weights to write.
template <typename T, typename W>
struct Body {
  AdamWStep<T> step;
  Target<T, W> target;
  T* m;
  T* v;

  [[gnu::always_inline]] void Run(int64_t begin, int64_t end,
                                  const T* __restrict gradient) const {
    const AdamWStep<T> s = step;
    const Target<T, W> to = target;
    T* __restrict const p = to.p;
    T* __restrict const first = m;
    T* __restrict const second = v;
    BFloat16* __restrict const w = to.w;
    for (int64_t i = begin; i < end; ++i) {
      T pi = p[i], mi = first[i], vi = second[i];
      s(pi, gradient[i - begin], mi, vi);
      first[i] = mi;
      second[i] = vi;
      p[i] = pi;
      if constexpr (!std::is_void_v<W>) w[i] = Rounded(pi);
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
  WithTarget<T>({.p = a.p, .w = a.w},
                [&]<typename W>(const Target<T, W>& target) {
                  const Body<T, W> body{.step = AdamWStep<T>(a),
                                        .target = target,
                                        .m = static_cast<T*>(a.m),
                                        .v = static_cast<T*>(a.v)};
                  RunElementsBy(way.set, way.pool,
                                WithGradient<T, Body<T, W>>{
                                    .inner = body, .gradient = {a.g, a.bf16_g}},
                                a.n);
                });
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
