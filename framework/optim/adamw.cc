#include "framework/optim/adamw.h"

#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/optim/updated.h"
#include "framework/tensor/block8.h"

namespace delink {
namespace {

class AdamW final : public SlabOptimizer {
 public:
  AdamW(const AdamWConfig& config, ParamRules rules)
      : SlabOptimizer(std::move(rules)), config_(config) {}

  std::vector<StateSpec> states() const override {
    std::vector<StateSpec> specs = TwoMoments();
    for (StateSpec& spec : specs) {
      spec.hidden.storage = config_.moments;
      if (config_.moments == StateStorage::kBF16) {
        spec.outer.storage = StateStorage::kBF16;
      }
    }
    return specs;
  }

  void Update(Stream& stream, ParamStore& store, int slab,
              const UpdateControl* control, int64_t update) override {
    DELINK_CHECK_GE(update, 1);
    const auto kernel = KernelsFor(store, slab).adamw;
    for (const UpdateRun& run : RunsOf(store, slab, rules())) {
      for (const UpdatedPart& part :
           PartsOf(store, slab, run, control, {rounding(), update},
                   config_.moments != StateStorage::kExact)) {
        AdamWArgs args = AdamWArgsOf(part.params);
        args.beta1 = run.hyper.beta1;
        args.beta2 = run.hyper.beta2;
        args.eps = config_.eps;
        args.update = update;
        args.m = store.at(slab, StatePlane(0), part.begin);
        args.v = store.at(slab, StatePlane(1), part.begin);
        if (part.param >= 0) AddBlocks(store, slab, part, &args);
        kernel(stream, args);
      }
    }
  }

 private:
  // The storage of the moments of the part's parameter.
  static void AddBlocks(const ParamStore& store, int slab,
                        const UpdatedPart& part, AdamWArgs* args) {
    const auto p = static_cast<size_t>(part.param);
    const int64_t offset = At(store.slab(slab).params, part.param).offset;
    const ParamStore::StatePlace m = store.state(slab, 0, p);
    DELINK_CHECK(m.scales == nullptr || part.begin - offset == m.held.begin);
    args->moments = m.format.storage;
    args->m_scales = m.scales;
    args->v_scales = store.state(slab, 1, p).scales;
    args->in_block = part.begin % kBlock8;
  }

  AdamWConfig config_;
};

}  // namespace

std::unique_ptr<SlabOptimizer> NewAdamW(const AdamWConfig& config,
                                        ParamRules rules) {
  return std::make_unique<AdamW>(config, std::move(rules));
}

std::unique_ptr<SlabOptimizer> NewAdamW(const AdamWConfig& config) {
  return NewAdamW(config, ParamRules({.decay = config.decay,
                                      .beta1 = config.beta1,
                                      .beta2 = config.beta2}));
}

}  // namespace delink
