#include "framework/optim/adafactor.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/optim/kernels.h"
#include "framework/optim/tensor_cut.h"
#include "framework/optim/updated.h"

namespace delink {
namespace {

constexpr int64_t kParamBlock = 4096;  // elements, of the sums over parameters
constexpr int64_t kTotals = 2;  // of squares of an update and of parameters

// Each of a parameter's entries as the kernels see it: a vector has no columns.
struct Extents {
  int64_t count = 1;  // entries
  int64_t rows = 0, columns = 0;
  int64_t elements() const { return rows * std::max<int64_t>(columns, 1); }
};

Extents ExtentsOf(const ParamDecl& decl) {
  const Entries entries = EntriesOf(decl.spec);
  if (!decl.spec.is_vector()) {
    return {entries.count, entries.rows, entries.columns};
  }
  return {.count = entries.count, .rows = entries.elements()};
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
  double* totals = nullptr;  // [2]
  int64_t bytes = 0;

  AdafactorScratch(char* scratch, const Extents& e) {
    const auto take = [&](int64_t count) {
      char* const at = scratch + bytes;
      bytes += AlignUp(count * 8);
      return reinterpret_cast<double*>(at);
    };
    const int64_t n = e.elements();
    rows = take(e.rows);
    columns = take(e.columns);
    partial = take((e.rows + kColumnRun - 1) / kColumnRun * e.columns);
    u_sums = take(e.rows);
    p_sums = take((n + kParamBlock - 1) / kParamBlock);
    mean = take(1);
    step = take(1);
    totals = take(2);
  }
};

// The part that one slab here has of an entry cut along the tensor axis.
struct Share {
  AdafactorArgs args;
  bool counts = false;  // this rank adds it to sums over the axis
};

// The local slabs of a logical slab on a rank that have some of its `param`.
std::vector<SlabOnRank> SlabsWith(const Layout& layout, int logical,
                                  size_t param, int rank) {
  std::vector<SlabOnRank> slabs = SlabsOnRank(layout, logical, rank);
  std::erase_if(slabs, [&](const SlabOnRank& at) {
    const std::vector<size_t>& params =
        At(layout.local_slabs(), at.slab).params;
    return std::ranges::find(params, param) == params.end();
  });
  return slabs;
}

// Whether the update of this slab updates the pieces of params[param] in all
// slabs, together with the ranks of the tensor axis: the first slab's does.
bool Joins(const Layout& layout, const SlabOnRank& here, size_t param) {
  if (!IsCut(layout, here.slab, param)) return false;
  const LocalSlab& local = At(layout.local_slabs(), here.slab);
  const std::vector<SlabOnRank> slabs =
      SlabsWith(layout, local.logical, local.params[param], here.rank);
  return slabs.front().slab == here.slab && UpdatesAlongTensor(layout, here);
}

class Adafactor final : public SlabOptimizer {
 public:
  Adafactor(const AdafactorConfig& config, ParamRules rules)
      : SlabOptimizer(std::move(rules)), config_(config) {}

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

  std::vector<UpdateExchange> Exchanges(const Layout& layout, int rank,
                                        int slab, DType) const override {
    const LocalSlab& local = At(layout.local_slabs(), slab);
    const SlabOnRank here{.rank = rank, .slab = slab};
    std::vector<UpdateExchange> exchanges;
    for (size_t p = 0; p < local.slab.params.size(); ++p) {
      if (!Joins(layout, here, p)) continue;
      const ParamDecl& decl = layout.registry().decl(local.slab.params[p].decl);
      const Extents all = ExtentsOf(decl);
      const bool by_columns = decl.spec.split == Split::kIn;
      for (int64_t e = 0; e < all.count; ++e) {
        if (all.columns > 0) {
          exchanges.push_back({.count = by_columns ? all.rows : all.columns,
                               .dtype = DType::kF64});
        }
        exchanges.push_back({.count = kTotals, .dtype = DType::kF64});
      }
    }
    return exchanges;
  }

  void Update(Stream& stream, ParamStore& store, int slab,
              const UpdateControl* control, int64_t update) override {
    const std::vector<SlabParam>& params = store.slab(slab).params;
    const Range held = store.held(slab, Plane::kState0);
    const SlabOnRank here = PlaceOf(store, slab);
    for (size_t i = 0; i < params.size(); ++i) {
      const ParamDecl& decl = DeclOf(store, params[i]);
      const Extents extents = ExtentsOf(decl);
      if (IsCut(store.layout(), here.slab, i)) {
        if (!Joins(store.layout(), here, i)) continue;
        for (int64_t e = 0; e < extents.count; ++e) {
          UpdateCut(stream, store, decl,
                    SharesOf(store, slab, i, e, control, update));
        }
        continue;
      }
      const int64_t begin = params[i].offset;
      const int64_t end = begin + params[i].elements;
      if (end <= held.begin || begin >= held.end) continue;
      // Of experts a rank has some, each whole.
      const int64_t count = params[i].elements / extents.elements();
      DELINK_CHECK(held.begin <= begin && end <= held.end &&
                   end - begin == count * extents.elements())
          << "Adafactor needs all of " << decl.name;
      for (int64_t e = 0; e < count; ++e) {
        UpdateOne(stream, store,
                  ArgsOf(store, slab, i, e, extents, control, update));
      }
    }
  }

 private:
  // Of the part, of these extents, that the slab has of an entry of its
  // params[param].
  AdafactorArgs ArgsOf(const ParamStore& store, int slab, size_t param,
                       int64_t entry, const Extents& here,
                       const UpdateControl* control, int64_t update) const {
    const SlabParam& place = At(store.slab(slab).params, param);
    const int64_t begin = place.offset + entry * here.elements();
    const UpdateRun run = {
        .begin = begin,
        .end = begin + here.elements(),
        .hyper = rules().HyperOf(store.registry(), place.decl)};
    const auto state = [&](int which, int64_t values) -> void* {
      return static_cast<char*>(store.state(slab, which, param).values) +
             entry * values * SizeOf(store.dtype(slab, Plane::kState0));
    };
    const bool matrix = here.columns > 0;
    void* const row = state(0, here.rows);
    return {.params = ParamsOf(store, slab, run, control, {rounding(), update}),
            .rows = here.rows,
            .columns = here.columns,
            .row = matrix ? row : nullptr,
            .column = matrix ? state(1, here.columns) : nullptr,
            .v = matrix ? nullptr : row,
            .eps = config_.eps,
            .relative = config_.relative,
            .update = update};
  }

  // The shares of an entry of params[param] in all slabs here whose state this
  // rank has.
  std::vector<Share> SharesOf(const ParamStore& store, int slab, size_t param,
                              int64_t entry, const UpdateControl* control,
                              int64_t update) const {
    const Layout& layout = store.layout();
    const LocalSlab& first = store.local(slab);
    const size_t logical_param = first.params[param];
    std::vector<Share> shares;
    for (const SlabOnRank& at :
         SlabsWith(layout, first.logical, logical_param, store.rank())) {
      if (!Updates(layout, at)) continue;
      const int here = store.SlabOf(at.slab);
      const LocalSlab& local = store.local(here);
      const auto p =
          static_cast<size_t>(std::ranges::find(local.params, logical_param) -
                              local.params.begin());
      const SlabParam& place = local.slab.params[p];
      if (place.elements == 0) continue;
      const Extents all = ExtentsOf(DeclOf(store, place));
      const int64_t columns =
          all.columns > 0 ? local.rects[p].front().columns : 0;
      const Extents extents = {
          .rows = place.elements / all.count / std::max<int64_t>(columns, 1),
          .columns = columns};
      shares.push_back(
          {.args = ArgsOf(store, here, p, entry, extents, control, update),
           .counts = IsFirstToUpdate(layout, at)});
      shares.back().args.all_rows = all.rows;
      shares.back().args.all_columns = all.columns;
    }
    return shares;
  }

  // Updates an entry of a parameter that is cut along the tensor axis.
  void UpdateCut(Stream& stream, const ParamStore& store, const ParamDecl& decl,
                 std::vector<Share> shares) const {
    const OptimKernels& kernels = KernelsFor(store);
    const Extents all = ExtentsOf(decl);
    const AdafactorScratch at(scratch(), all);
    const bool matrix = all.columns > 0;
    // Sums that the cut splits over ranks; the others are complete here.
    const bool by_columns = decl.spec.split == Split::kIn;
    double* const sums = by_columns ? at.rows : at.columns;
    const int64_t count = by_columns ? all.rows : all.columns;
    if (matrix) {
      store.device().FillZero(stream, sums, count * 8);
      for (const Share& share : shares) {
        if (!share.counts) continue;
        if (by_columns) {
          RowSquares(stream, kernels, share.args, at);
        } else {
          ColumnSquares(stream, kernels, share.args, at, /*accumulate=*/true);
        }
      }
      Sum(sums, count);
    }
    store.device().FillZero(stream, at.totals, kTotals * 8);
    for (Share& share : shares) {
      share.args = WithScratch(share.args, at);
      share.args.totals = at.totals;
      if (matrix && by_columns) {
        ColumnSquares(stream, kernels, share.args, at, /*accumulate=*/false);
      } else if (matrix) {
        RowSquares(stream, kernels, share.args, at);
      }
      FactorsAndSums(stream, kernels, share.args, at);
      if (share.counts) kernels.adafactor_totals(stream, share.args);
    }
    Sum(at.totals, kTotals);
    for (const Share& share : shares) {
      kernels.adafactor_step(stream, share.args);
    }
  }

  void Sum(double* values, int64_t count) const {
    tensor_group().AllReduce(values, count, DType::kF64,
                             VisitGroup::Reduction::kSum);
  }

  void UpdateOne(Stream& stream, const ParamStore& store,
                 AdafactorArgs args) const {
    const OptimKernels& kernels = KernelsFor(store);
    const AdafactorScratch at(scratch(),
                              {.rows = args.rows, .columns = args.columns});
    args = WithScratch(args, at);
    if (args.columns > 0) {
      RowSquares(stream, kernels, args, at);
      ColumnSquares(stream, kernels, args, at, /*accumulate=*/false);
    }
    FactorsAndSums(stream, kernels, args, at);
    kernels.adafactor_step(stream, args);
  }

  static AdafactorArgs WithScratch(AdafactorArgs args,
                                   const AdafactorScratch& at) {
    args.row_sums = at.rows;
    args.column_sums = at.columns;
    args.mean = at.mean;
    args.u_sums = at.u_sums;
    args.p_sums = at.p_sums;
    args.p_count = (args.params.n + kParamBlock - 1) / kParamBlock;
    args.step = at.step;
    return args;
  }

  static void RowSquares(Stream& stream, const OptimKernels& kernels,
                         const AdafactorArgs& args,
                         const AdafactorScratch& at) {
    const UpdatedParams& params = args.params;
    SumSquaresArgs rows{.n = params.n,
                        .block = args.columns,
                        .sums = at.rows,
                        .clip = params.control};
    if (params.bf16_g) {
      rows.w = static_cast<const uint16_t*>(params.g);
    } else {
      rows.x = params.g;
    }
    kernels.sum_squares(stream, rows);
  }

  static void ColumnSquares(Stream& stream, const OptimKernels& kernels,
                            const AdafactorArgs& args,
                            const AdafactorScratch& at, bool accumulate) {
    kernels.column_squares(stream, {.g = args.params.g,
                                    .bf16_g = args.params.bf16_g,
                                    .control = args.params.control,
                                    .rows = args.rows,
                                    .columns = args.columns,
                                    .partial = at.partial,
                                    .sums = at.columns,
                                    .accumulate = accumulate});
  }

  static void FactorsAndSums(Stream& stream, const OptimKernels& kernels,
                             const AdafactorArgs& args,
                             const AdafactorScratch& at) {
    if (args.columns > 0) kernels.adafactor_factors(stream, args);
    kernels.adafactor_sums(stream, args);
    if (!args.relative) return;
    const UpdatedParams& params = args.params;
    SumSquaresArgs sums{.n = params.n, .block = kParamBlock, .sums = at.p_sums};
    if (params.master == MasterForm::kWhole) {
      sums.x = params.p;
    } else {
      sums.w = static_cast<const uint16_t*>(params.w);
      sums.low = params.low;
    }
    kernels.sum_squares(stream, sums);
  }

  AdafactorConfig config_;
};

}  // namespace

std::unique_ptr<SlabOptimizer> NewAdafactor(const AdafactorConfig& config,
                                            ParamRules rules) {
  return std::make_unique<Adafactor>(config, std::move(rules));
}

}  // namespace delink
