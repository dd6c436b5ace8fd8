#include "framework/optim/adafactor.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "framework/optim/kernels.h"
#include "framework/optim/updated.h"

namespace delink {
namespace {

constexpr int64_t kParamBlock = 4096;  // elements, of the sums over parameters

// A parameter as the kernels see it: a vector has no columns.
struct Extents {
  int64_t rows = 0, columns = 0;
};

Extents ExtentsOf(const ParamDecl& decl) {
  const Shape& shape = decl.spec.shape;
  if (shape.rank() < 2) return {.rows = shape.elements()};
  DELINK_CHECK_EQ(shape.rank(), 2) << decl.name;
  return {.rows = shape[0], .columns = shape[1]};
}

// Pieces of the scratch memory.
struct AdafactorScratch {
  double* rows = nullptr;
  double* columns = nullptr;
  double* partial = nullptr;
  double* u_sums = nullptr;
  double* p_sums = nullptr;
  double* mean = nullptr;
  double* step = nullptr;
  int64_t bytes = 0;

  AdafactorScratch(char* scratch, const Extents& e) {
    const auto take = [&](int64_t count) {
      char* const at = scratch + bytes;
      bytes += AlignUp(count * 8);
      return reinterpret_cast<double*>(at);
    };
    const int64_t n = e.rows * std::max<int64_t>(e.columns, 1);
    rows = take(e.rows);
    columns = take(e.columns);
    partial = take((e.rows + kColumnRun - 1) / kColumnRun * e.columns);
    u_sums = take(e.rows);
    p_sums = take((n + kParamBlock - 1) / kParamBlock);
    mean = take(1);
    step = take(1);
  }
};

class Adafactor final : public SlabOptimizer {
 public:
  Adafactor(const AdafactorConfig& config, ParamRules rules)
      : config_(config), rules_(std::move(rules)) {}

  std::vector<StateSpec> states() const override {
    const StateFormat row = {.extent = StateExtent::kRows};
    const StateFormat column = {.extent = StateExtent::kColumns};
    const StateFormat none = {.extent = StateExtent::kNone};
    return {{.name = "row",
             .degree = 2,
             .is_signed = false,
             .hidden = row,
             .outer = row,
             .vectors = {}},
            {.name = "column",
             .degree = 2,
             .is_signed = false,
             .hidden = column,
             .outer = column,
             .vectors = none}};
  }
  WholeTensors whole_tensors() const override { return WholeTensors::kAll; }

  int64_t ScratchBytes(const ParamStore& store) const override {
    int64_t most = 0;
    for (const Slab& slab : store.slabs()) {
      for (const SlabParam& param : slab.params) {
        most = std::max(
            most,
            AdafactorScratch(nullptr, ExtentsOf(DeclOf(store, param))).bytes);
      }
    }
    return most;
  }

  void Update(Stream& stream, ParamStore& store, int slab,
              const UpdateControl* control, int64_t update) override {
    const std::vector<SlabParam>& params = store.slab(slab).params;
    const Range held = store.held(slab, Plane::kState0);
    for (size_t i = 0; i < params.size(); ++i) {
      const UpdateRun run = {
          .begin = params[i].offset,
          .end = params[i].offset + params[i].elements,
          .hyper = rules_.HyperOf(store.registry(), params[i].decl)};
      if (run.end <= held.begin || run.begin >= held.end) continue;
      DELINK_CHECK(held.begin <= run.begin && run.end <= held.end)
          << "Adafactor needs all of " << DeclOf(store, params[i]).name;
      const ParamStore::StatePlace row = store.state(slab, 0, i);
      const ParamStore::StatePlace column = store.state(slab, 1, i);
      const Extents extents = ExtentsOf(DeclOf(store, params[i]));
      DELINK_CHECK_EQ(extents.rows * std::max<int64_t>(extents.columns, 1),
                      params[i].elements)
          << "Adafactor needs all of " << DeclOf(store, params[i]).name;
      const bool matrix = extents.columns > 0;
      UpdateOne(stream, store,
                {.params = ParamsOf(store, slab, run, control),
                 .rows = extents.rows,
                 .columns = extents.columns,
                 .row = matrix ? row.values : nullptr,
                 .column = column.values,
                 .v = matrix ? nullptr : row.values,
                 .eps = config_.eps,
                 .relative = config_.relative,
                 .update = update});
    }
  }

 private:
  void UpdateOne(Stream& stream, const ParamStore& store,
                 AdafactorArgs args) const {
    const OptimKernels& kernels = KernelsFor(store);
    const AdafactorScratch at(scratch(),
                              {.rows = args.rows, .columns = args.columns});
    const int64_t n = args.params.n;
    args.row_sums = at.rows;
    args.column_sums = at.columns;
    args.mean = at.mean;
    args.u_sums = at.u_sums;
    args.p_sums = at.p_sums;
    args.p_count = (n + kParamBlock - 1) / kParamBlock;
    args.step = at.step;
    if (args.columns > 0) {
      const UpdatedParams& params = args.params;
      SumSquaresArgs rows{.n = n,
                          .block = args.columns,
                          .sums = at.rows,
                          .clip = params.control};
      if (params.bf16_g) {
        rows.w = static_cast<const uint16_t*>(params.g);
      } else {
        rows.x = params.g;
      }
      kernels.sum_squares(stream, rows);
      kernels.column_squares(stream, {.g = params.g,
                                      .bf16_g = params.bf16_g,
                                      .control = params.control,
                                      .rows = args.rows,
                                      .columns = args.columns,
                                      .partial = at.partial,
                                      .sums = at.columns});
      kernels.adafactor_factors(stream, args);
    }
    kernels.adafactor_sums(stream, args);
    if (args.relative) {
      kernels.sum_squares(stream, {.x = args.params.p,
                                   .n = n,
                                   .block = kParamBlock,
                                   .sums = at.p_sums});
    }
    kernels.adafactor_step(stream, args);
  }

  AdafactorConfig config_;
  ParamRules rules_;
};

}  // namespace

std::unique_ptr<SlabOptimizer> NewAdafactor(const AdafactorConfig& config,
                                            ParamRules rules) {
  return std::make_unique<Adafactor>(config, std::move(rules));
}

}  // namespace delink
