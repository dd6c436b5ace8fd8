#include "framework/optim/balance.h"

#include <algorithm>
#include <cstddef>

#include "framework/base/check.h"
#include "framework/optim/kernels.h"
#include "framework/optim/updated.h"

namespace delink {

namespace {

bool Balances(const ParamSpec& spec) {
  return spec.balance_rate > 0 || spec.router_loads;
}

}  // namespace

bool HasBias(const ParamStore& store, int slab) {
  return std::ranges::any_of(store.slab(slab).params, [&](const SlabParam& p) {
    return Balances(DeclOf(store, p).spec);
  });
}

void MoveBiases(Stream& stream, ParamStore& store, int slab,
                const UpdateControl* control, const double* sums,
                const int64_t* layers) {
  const Slab& of = store.slab(slab);
  const Range held = store.held(slab, Plane::kState0);
  for (const SlabParam& param : of.params) {
    const ParamSpec& spec = DeclOf(store, param).spec;
    if (!Balances(spec)) continue;
    DELINK_CHECK(spec.exact && spec.is_vector()) << of.name;
    const int64_t begin = std::max(held.begin, param.offset);
    const int64_t end = std::min(held.end, param.offset + param.elements);
    if (begin >= end) continue;
    KernelsFor(store, slab)
        .balance_bias(stream,
                      {.E = param.elements,
                       .first = begin - param.offset,
                       .n = end - begin,
                       .rate = spec.balance_rate,
                       .loads = spec.router_loads,
                       .sums = sums,
                       .layers = layers,
                       .count = static_cast<int64_t>(of.layers.size()),
                       .control = control,
                       .bias = store.at(slab, store.master(slab), begin)});
  }
}

}  // namespace delink
