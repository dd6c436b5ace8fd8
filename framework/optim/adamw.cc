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

constexpr int64_t kRounded = 8;  // values that one draw rounds

// Values [range.begin, range.end) of a parameter of a local slab that one call
// updates, and their positions in the whole parameter.
struct NumberedRange {
  Range range;
  ElementNumbers numbers;
};

// The values of `range` that are in `rect` of a matrix with `columns` columns.
// Here the values of `rect` are [offset, offset + rect.elements()).
NumberedRange InRect(const Rect& rect, int64_t offset, int64_t columns,
                     Range range) {
  const Range held{std::max(range.begin, offset),
                   std::min(range.end, offset + rect.elements())};
  const int64_t first = rect.row * columns + rect.column;
  const int64_t at = held.begin - offset;
  if (rect.columns == columns || rect.rows == 1)
    return {held, {.first = first + at}};
  return {held,
          {.first = first + at / rect.columns * columns,
           .columns = rect.columns,
           .pitch = columns,
           .in_row = at % rect.columns}};
}

bool CanRound(const ElementNumbers& numbers) {
  return (numbers.first | numbers.columns | numbers.pitch | numbers.in_row) %
             kRounded ==
         0;
}

// Splits `range` into rectangles with their positions in the whole parameter.
// But if tensor parallelism cuts between values of one draw, or with 8-bit
// `blocks`, which cross the ends of rows, it is one range whose positions count
// from that of the first value here.
std::vector<NumberedRange> NumbersOf(const LocalSlab& local, size_t param,
                                     const ParamRegistry& registry, Range range,
                                     bool blocks) {
  const SlabParam& place = local.slab.params[param];
  const int64_t columns = WholeOf(registry.decl(place.decl).spec.shape).columns;
  std::vector<NumberedRange> ranges;
  int64_t offset = 0, first = 0;
  bool own = !blocks;
  for (const Rect& rect : local.rects[param]) {
    const ElementNumbers numbers =
        InRect(rect, offset, columns, {offset, offset + rect.elements()})
            .numbers;
    if (offset == 0) first = numbers.first / kRounded * kRounded;
    own = own && offset % kRounded == 0 && CanRound(numbers);
    const NumberedRange here = InRect(rect, offset, columns, range);
    if (here.range.size() > 0) ranges.push_back(here);
    offset += rect.elements();
  }
  if (own) return ranges;
  return {{range, {.first = first + range.begin}}};
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
    const auto kernel = KernelsFor(store, slab).adamw;
    // One call updates neighbours with the same hyper-parameters; the padding
    // between them is zero and stays zero. If rounding depends on name or
    // block, each parameter needs its own calls.
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
        // 8-bit blocks cross the ends of a matrix's rows.
        const bool blocks = store.state(slab, 0, p).scales != nullptr;
        for (const NumberedRange& part :
             NumbersOf(store.local(slab), p, store.registry(), range, blocks)) {
          args = WithParam(args, store, slab, p, part, update);
          kernel(stream,
                 WithAddresses(args, store, slab, offset + part.range.begin,
                               offset + part.range.end));
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

  // Adds the addresses of elements [begin, end) of the slab.
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

  // Adds the arguments that depend on the parameter and on values' positions.
  AdamWArgs WithParam(AdamWArgs args, const ParamStore& store, int slab,
                      size_t param, const NumberedRange& part,
                      int64_t update) const {
    const SlabParam& place = store.slab(slab).params[param];
    const std::string& name = DeclOf(store, place).name;
    const ParamStore::StatePlace m = store.state(slab, 0, param);
    DELINK_CHECK(m.scales == nullptr || part.range.begin == m.held.begin)
        << name;
    DELINK_CHECK(CanRound(part.numbers)) << name;
    args.moments = m.format.storage;
    args.m_scales = m.scales;
    args.v_scales = store.state(slab, 1, param).scales;
    args.in_block = (place.offset + part.range.begin) % kBlock8;
    args.key =
        Fold(Fold(key_, std::string_view(name)), static_cast<uint64_t>(update));
    args.numbers = part.numbers;
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
