#include "framework/optim/adamw.h"

#include <algorithm>

#include "framework/optim/kernels.h"

namespace delink {
namespace {

class AdamW final : public SlabOptimizer {
 public:
  explicit AdamW(const AdamWConfig& config) : config_(config) {}

  std::vector<StateSpec> states() const override { return TwoMoments(); }

  void Update(Stream& stream, ParamStore& store, int slab,
              const UpdateControl* control, int64_t update) override {
    DELINK_CHECK_GE(update, 1);
    const OptimKernels* const kernels =
        FindOptimKernels(store.device().kind(), store.dtype(Plane::kGradient));
    DELINK_CHECK(kernels != nullptr) << "no AdamW on " << store.device().name();
    DELINK_CHECK(store.dtype(store.master()) == store.dtype(Plane::kState0));
    const bool rounds = store.master() != Plane::kWeight;
    const std::vector<SlabParam>& params =
        store.slabs()[static_cast<size_t>(slab)].params;
    const Range range = store.held(slab, Plane::kState0);
    // Neighbours with the same decay go in one call; the padding between them
    // is zero and stays zero.
    for (size_t first = 0; first < params.size();) {
      size_t last = first;
      while (last + 1 < params.size() &&
             Decays(store, params[last + 1]) == Decays(store, params[first])) {
        ++last;
      }
      const int64_t begin = std::max(range.begin, params[first].offset);
      const int64_t end =
          std::min(range.end, params[last].offset + params[last].elements);
      if (begin < end) {
        kernels->adamw(
            stream,
            {.p = store.at(slab, store.master(), begin),
             .w = rounds ? store.at(slab, Plane::kWeight, begin) : nullptr,
             .g = store.at(slab, Plane::kGradient, begin),
             .m = store.at(slab, Plane::kState0, begin),
             .v = store.at(slab, Plane::kState1, begin),
             .n = end - begin,
             .beta1 = config_.beta1,
             .beta2 = config_.beta2,
             .eps = config_.eps,
             .decay = Decays(store, params[first]) ? config_.decay : 0,
             .update = update,
             .control = control});
      }
      first = last + 1;
    }
  }

 private:
  static bool Decays(const ParamStore& store, const SlabParam& param) {
    return store.registry().decls[static_cast<size_t>(param.decl)].spec.decay;
  }

  AdamWConfig config_;
};

}  // namespace

std::unique_ptr<SlabOptimizer> NewAdamW(const AdamWConfig& config) {
  return std::make_unique<AdamW>(config);
}

}  // namespace delink
