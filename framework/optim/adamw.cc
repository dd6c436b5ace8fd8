#include "framework/optim/adamw.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/optim/updated.h"
#include "framework/tensor/block8.h"

namespace delink {
namespace {

constexpr int64_t kRounded = 8;  // values that are rounded by one draw

// The number in the whole parameter of what a local slab has first of it, from
// which its values are counted where they are rounded stochastically.
int64_t FirstNumber(const LocalSlab& local, size_t param,
                    const ParamRegistry& registry) {
  const std::vector<Rect>& rects = local.rects[param];
  const SlabParam& place = local.slab.params[param];
  const int64_t columns = WholeOf(registry.decl(place.decl).spec.shape).columns;
  if (rects.empty()) return 0;
  const int64_t first = rects[0].row * columns + rects[0].column;
  return first / kRounded * kRounded;
}

// Whether instead each goes by its own number in the whole parameter: not where
// tensor parallelism cuts between values of one draw.
bool HasOwnNumbers(const LocalSlab& local, size_t param,
                   const ParamRegistry& registry) {
  bool whole = true;
  ForEachLogicalRun(
      local, param, registry, {0, local.slab.params[param].elements},
      [&](Range run, int64_t first) {
        whole = whole && first % kRounded == 0 && run.begin % kRounded == 0;
      });
  return whole;
}

MasterForm FormOf(const ParamStore& store) {
  const bool rounded = store.dtype(Plane::kWeight) == DType::kBF16;
  return rounded ? store.options().master : MasterForm::kWhole;
}

class AdamW final : public SlabOptimizer {
 public:
  AdamW(const AdamWConfig& config, ParamRules rules)
      : config_(config),
        rules_(std::move(rules)),
        key_(Fold(KeyFromSeed(config.seed), "rounding")) {}

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
    const auto kernel = KernelsFor(store).adamw;
    // Neighbours that are updated alike go in one call; the padding between
    // them is zero and stays zero. What is rounded by name or by block goes
    // parameter by parameter.
    const bool together = config_.moments == StateStorage::kExact &&
                          FormOf(store) != MasterForm::kNone;
    for (const UpdateRun& run : RunsOf(store, slab, rules_)) {
      AdamWArgs args = ArgsOf(store, run);
      args.update = update;
      args.control = control;
      if (together) {
        kernel(stream, WithAddresses(args, store, slab, run.begin, run.end));
        continue;
      }
      const std::vector<SlabParam>& params = store.slab(slab).params;
      for (size_t p = 0; p < params.size(); ++p) {
        const int64_t offset = params[p].offset;
        const Range range{
            std::max(run.begin, offset) - offset,
            std::min(run.end, offset + params[p].elements) - offset};
        if (range.size() <= 0) continue;
        const LocalSlab& local = store.local(slab);
        const auto step = [&](Range part, int64_t first) {
          args = WithParam(args, store, slab, p, part.begin, first, update);
          kernel(stream, WithAddresses(args, store, slab, offset + part.begin,
                                       offset + part.end));
        };
        // Blocks of 8 bits go over the ends of a matrix's rows that are here.
        const bool blocks = store.state(slab, 0, p).scales != nullptr;
        if (!blocks && HasOwnNumbers(local, p, store.registry())) {
          ForEachLogicalRun(local, p, store.registry(), range, step);
        } else {
          step(range, FirstNumber(local, p, store.registry()) + range.begin);
        }
      }
    }
  }

 private:
  AdamWArgs ArgsOf(const ParamStore& store, const UpdateRun& run) const {
    return {.lr_scale = run.hyper.lr_scale,
            .beta1 = run.hyper.beta1,
            .beta2 = run.hyper.beta2,
            .eps = config_.eps,
            .decay = run.hyper.decay,
            .master = FormOf(store)};
  }

  // With the addresses of elements [begin, end) of the slab.
  static AdamWArgs WithAddresses(AdamWArgs args, const ParamStore& store,
                                 int slab, int64_t begin, int64_t end) {
    if (args.master == MasterForm::kWhole) {
      args.p = store.at(slab, store.master(), begin);
    } else if (args.master == MasterForm::kSplit) {
      args.low = static_cast<uint16_t*>(store.at(slab, Plane::kLow, begin));
    }
    if (store.dtype(Plane::kWeight) == DType::kBF16) {
      args.w = store.at(slab, Plane::kWeight, begin);
    }
    args.g = store.at(slab, Plane::kGradient, begin);
    args.bf16_g = HasBf16Gradients(store);
    args.m = store.at(slab, StatePlane(0), begin);
    args.v = store.at(slab, StatePlane(1), begin);
    args.n = end - begin;
    return args;
  }

  // With what depends on the parameter, from its value `begin` in the slab on,
  // which is number `first` of it.
  AdamWArgs WithParam(AdamWArgs args, const ParamStore& store, int slab,
                      size_t param, int64_t begin, int64_t first,
                      int64_t update) const {
    const SlabParam& place = store.slab(slab).params[param];
    const std::string& name = DeclOf(store, place).name;
    const ParamStore::StatePlace m = store.state(slab, 0, param);
    DELINK_CHECK(m.scales == nullptr || begin == m.held.begin) << name;
    DELINK_CHECK_EQ(first % kRounded, 0) << name;
    args.moments = m.format.storage;
    args.m_scales = m.scales;
    args.v_scales = store.state(slab, 1, param).scales;
    args.in_block = (place.offset + begin) % kBlock8;
    args.key =
        Fold(Fold(key_, std::string_view(name)), static_cast<uint64_t>(update));
    args.first = first;
    return args;
  }

  AdamWConfig config_;
  ParamRules rules_;
  RngKey key_;
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
