#include "framework/optim/first_order.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "framework/optim/kernels.h"
#include "framework/optim/updated.h"

namespace delink {
namespace {

std::vector<StateSpec> Momentum() { return {{.name = "m", .degree = 1}}; }

class Sgd final : public SlabOptimizer {
 public:
  Sgd(const SgdConfig& config, ParamRules rules)
      : SlabOptimizer(std::move(rules)), config_(config) {}

  std::vector<StateSpec> states() const override {
    return config_.has_momentum ? Momentum() : std::vector<StateSpec>();
  }

  void Update(Stream& stream, ParamStore& store, int slab,
              const UpdateControl* control, int64_t update) override {
    const OptimKernels& kernels = KernelsFor(store, slab);
    for (const UpdateRun& run : RunsOf(store, slab, rules())) {
      for (const UpdatedPart& part :
           PartsOf(store, slab, run, control, {rounding(), update})) {
        kernels.sgd(stream,
                    {.params = part.params,
                     .m = config_.has_momentum
                              ? store.at(slab, Plane::kState0, part.begin)
                              : nullptr,
                     .momentum = run.hyper.momentum,
                     .nesterov = config_.nesterov});
      }
    }
  }

 private:
  SgdConfig config_;
};

class Lion final : public SlabOptimizer {
 public:
  explicit Lion(ParamRules rules) : SlabOptimizer(std::move(rules)) {}

  std::vector<StateSpec> states() const override { return Momentum(); }

  void Update(Stream& stream, ParamStore& store, int slab,
              const UpdateControl* control, int64_t update) override {
    const OptimKernels& kernels = KernelsFor(store, slab);
    for (const UpdateRun& run : RunsOf(store, slab, rules())) {
      for (const UpdatedPart& part :
           PartsOf(store, slab, run, control, {rounding(), update})) {
        kernels.lion(stream, {.params = part.params,
                              .m = store.at(slab, Plane::kState0, part.begin),
                              .beta1 = run.hyper.beta1,
                              .beta2 = run.hyper.beta2});
      }
    }
  }

 private:
};

}  // namespace

std::unique_ptr<SlabOptimizer> NewSgd(const SgdConfig& config,
                                      ParamRules rules) {
  return std::make_unique<Sgd>(config, std::move(rules));
}

std::unique_ptr<SlabOptimizer> NewLion(ParamRules rules) {
  return std::make_unique<Lion>(std::move(rules));
}

}  // namespace delink
