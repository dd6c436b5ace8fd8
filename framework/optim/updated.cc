#include "framework/optim/updated.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "framework/base/check.h"
#include "framework/optim/find_kernels.h"

namespace delink {

namespace {

const OptimKernels& KernelsOf(const ParamStore& store, DeviceKind kind) {
  const DType dtype = StatisticsOf(store.options().dtype);
  const OptimKernels* const kernels = FindOptimKernels(kind, dtype);
  DELINK_CHECK(kernels != nullptr)
      << "no optimizer for " << ToString(dtype) << " on " << ToString(kind);
  return *kernels;
}

// Values [range.begin, range.end) of a parameter of a local slab that one call
// updates, and their positions in the whole parameter.
struct NumberedRange {
  Range range;
  ElementNumbers numbers;
};

constexpr int64_t kRounded = 8;  // values that one draw rounds

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
// If values of several rectangles must be updated `together`, or tensor
// parallelism cuts between values of one draw, it is one range whose positions
// count from that of the first value here; so it is for each range of a
// parameter that has `blocks` across rectangles, whatever a rank's shard is.
std::vector<NumberedRange> NumbersOf(const LocalSlab& local, size_t param,
                                     const ParamRegistry& registry, Range range,
                                     bool together, bool blocks) {
  const SlabParam& place = local.slab.params[param];
  const int64_t columns = WholeOf(registry.decl(place.decl).spec.shape).columns;
  std::vector<NumberedRange> ranges;
  int64_t offset = 0, first = 0;
  bool own = true;
  for (const Rect& rect : local.rects[param]) {
    const ElementNumbers numbers =
        InRect(rect, offset, columns, {offset, offset + rect.elements()})
            .numbers;
    if (offset == 0) first = numbers.first / kRounded * kRounded;
    own = own && offset % kRounded == 0 && CanRound(numbers);
    NumberedRange here = InRect(rect, offset, columns, range);
    // A range that begins between values of one draw takes them again.
    here.numbers.first = here.numbers.first / kRounded * kRounded;
    here.numbers.in_row = here.numbers.in_row / kRounded * kRounded;
    if (here.range.size() > 0) ranges.push_back(here);
    offset += rect.elements();
  }
  const bool apart = blocks     ? local.rects[param].size() == 1
                     : together ? ranges.size() == 1
                                : true;
  if (own && apart) return ranges;
  return {{range, {.first = (first + range.begin) / kRounded * kRounded}}};
}

// All of the run's, without key and numbers.
UpdatedParams AllOf(const ParamStore& store, int slab, const UpdateRun& run,
                    const UpdateControl* control) {
  const Plane master = store.master(slab);
  UpdatedParams params = {.g = store.at(slab, Plane::kGradient, run.begin),
                          .bf16_g = HasBf16Gradients(store, slab),
                          .n = run.end - run.begin,
                          .lr_scale = run.hyper.lr_scale,
                          .decay = run.hyper.decay,
                          .control = control,
                          .master = FormOf(store, slab)};
  if (params.master == MasterForm::kWhole) {
    params.p = store.at(slab, master, run.begin);
  } else if (params.master == MasterForm::kSplit) {
    params.low = static_cast<uint16_t*>(store.at(slab, Plane::kLow, run.begin));
  }
  if (store.dtype(slab, Plane::kWeight) == DType::kBF16) {
    params.w = store.at(slab, Plane::kWeight, run.begin);
  }
  return params;
}

}  // namespace

const OptimKernels& KernelsFor(const ParamStore& store) {
  return KernelsOf(store, store.device().kind());
}

const OptimKernels& KernelsFor(const ParamStore& store, int slab) {
  const bool host = store.placement(slab).update == Tier::kHost;
  const bool meta = IsMeta(store.device().kind());
  if (host && !meta) return KernelsOf(store, DeviceKind::kCpu);
  return KernelsFor(store);
}

const ParamDecl& DeclOf(const ParamStore& store, const SlabParam& param) {
  return store.registry().decl(param.decl);
}

bool HasBf16Gradients(const ParamStore& store, int slab) {
  return store.dtype(slab, Plane::kGradient) == DType::kBF16;
}

MasterForm FormOf(const ParamStore& store, int slab) {
  const bool rounded = store.dtype(slab, Plane::kWeight) == DType::kBF16;
  return rounded ? store.options().master : MasterForm::kWhole;
}

std::vector<UpdatedPart> PartsOf(const ParamStore& store, int slab,
                                 const UpdateRun& run,
                                 const UpdateControl* control,
                                 const Rounding& rounding, bool rounds_state,
                                 bool together) {
  if (FormOf(store, slab) != MasterForm::kNone && !rounds_state) {
    return {{.params = AllOf(store, slab, run, control), .begin = run.begin}};
  }
  std::vector<UpdatedPart> parts;
  const std::vector<SlabParam>& params = store.slab(slab).params;
  for (size_t p = 0; p < params.size(); ++p) {
    const int64_t offset = params[p].offset;
    const Range range{std::max(run.begin, offset) - offset,
                      std::min(run.end, offset + params[p].elements) - offset};
    if (range.size() <= 0) continue;
    const bool blocks =
        !store.states().empty() && store.state(slab, 0, p).scales != nullptr;
    const std::string_view name = DeclOf(store, params[p]).name;
    for (const NumberedRange& at : NumbersOf(
             store.local(slab), p, store.registry(), range, together, blocks)) {
      const UpdateRun part{.begin = offset + at.range.begin,
                           .end = offset + at.range.end,
                           .hyper = run.hyper};
      UpdatedPart& added = parts.emplace_back(
          UpdatedPart{.params = AllOf(store, slab, part, control),
                      .begin = part.begin,
                      .param = static_cast<int>(p)});
      added.params.key = Fold(Fold(rounding.key, name),
                              static_cast<uint64_t>(rounding.update));
      added.params.numbers = at.numbers;
    }
  }
  return parts;
}

UpdatedParams ParamsOf(const ParamStore& store, int slab, const UpdateRun& run,
                       const UpdateControl* control, const Rounding& rounding) {
  const std::vector<UpdatedPart> parts =
      PartsOf(store, slab, run, control, rounding, /*rounds_state=*/false,
              /*together=*/true);
  DELINK_CHECK_EQ(parts.size(), size_t{1});
  return parts.front().params;
}

AdamWArgs AdamWArgsOf(const UpdatedParams& params) {
  return {.p = params.p,
          .w = params.w,
          .g = params.g,
          .bf16_g = params.bf16_g,
          .n = params.n,
          .lr_scale = params.lr_scale,
          .decay = params.decay,
          .control = params.control,
          .master = params.master,
          .low = params.low,
          .key = params.key,
          .numbers = params.numbers};
}

}  // namespace delink
