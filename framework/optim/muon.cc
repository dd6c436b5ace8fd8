#include "framework/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/optim/kernels.h"
#include "framework/optim/newton_schulz.h"
#include "framework/optim/tensor_cut.h"
#include "framework/optim/updated.h"

namespace delink {
namespace {

// A matrix of a parameter: rows of it.
struct Part {
  int64_t first_row = 0;
  int64_t rows = 0, columns = 0;
  int64_t elements() const { return rows * columns; }
  Range range() const { return {first_row, first_row + rows}; }
};

// Of `elements` of the parameter, which are whole entries: of experts a rank
// has some.
std::vector<Part> PartsOf(const ParamDecl& decl, int64_t elements) {
  const Entries entries = EntriesOf(decl.spec);
  const int64_t count = elements / entries.elements();
  std::vector<int64_t> stacked = decl.spec.stacked;
  if (stacked.empty()) stacked = {entries.rows};
  std::vector<Part> parts;
  int64_t row = 0;
  for (int64_t e = 0; e < count; ++e) {
    for (const int64_t rows : stacked) {
      parts.push_back(
          {.first_row = row, .rows = rows, .columns = entries.columns});
      row += rows;
    }
  }
  DELINK_CHECK_EQ(row * entries.columns, elements) << decl.name;
  return parts;
}

std::vector<Part> PartsOf(const ParamDecl& decl) {
  return PartsOf(decl, decl.spec.shape.elements());
}

// The pieces of a part of params[param] on the ranks of the tensor axis, by
// place.
struct CutPart {
  struct Place {
    std::vector<MatrixPiece> pieces;
    bool updates = false;
  };
  std::vector<Place> places;
  int64_t count = 0;  // elements of the most that one has

  CutPart(const Layout& layout, const SlabOnRank& here, size_t param,
          const Part& part) {
    for (const SlabOnRank& there : AlongTensor(layout, here)) {
      const LocalSlab& local = At(layout.local_slabs(), there.slab);
      places.push_back({.pieces = PiecesOf(local, param, part.range()),
                        .updates = Updates(layout, there)});
      count = std::max(count, ElementsOf(places.back().pieces));
    }
  }
};

class Muon final : public SlabOptimizer {
 public:
  Muon(const MuonConfig& config, ParamRules rules, MatrixProductFn multiply)
      : SlabOptimizer(std::move(rules)), config_(config), multiply_(multiply) {}

  std::vector<StateSpec> states() const override {
    std::vector<StateSpec> moments = TwoMoments();
    moments[1].hidden.extent = StateExtent::kNone;
    return moments;
  }
  WholeTensors whole_tensors() const override { return WholeTensors::kHidden; }

  int64_t ScratchBytes(const ParamStore& store) const override {
    int64_t most = 0;
    for (size_t s = 0; s < store.slabs().size(); ++s) {
      const std::vector<SlabParam>& params = store.slabs()[s].params;
      const auto slab = static_cast<int>(s);
      const SlabOnRank here = PlaceOf(store, slab);
      for (size_t p = 0; p < params.size(); ++p) {
        const ParamDecl& decl = DeclOf(store, params[p]);
        if (KindOf(decl, store.blocks()) != ParamKind::kHidden) continue;
        const bool cut = IsCut(store.layout(), here.slab, p);
        for (const Part& part : PartsOf(decl)) {
          const int64_t gathered =
              cut ? Gathered(store.layout(),
                             CutPart(store.layout(), here, p, part))
                  : 0;
          most =
              std::max(most, OrthogonalMemory(nullptr, part.rows, part.columns,
                                              store, slab, gathered)
                                 .bytes);
        }
      }
    }
    return most;
  }

  std::vector<UpdateExchange> Exchanges(const Layout& layout, int rank,
                                        int slab, DType type) const override {
    const LocalSlab& local = At(layout.local_slabs(), slab);
    std::vector<UpdateExchange> exchanges;
    for (size_t p = 0; p < local.slab.params.size(); ++p) {
      const ParamDecl& decl = layout.registry().decl(local.slab.params[p].decl);
      if (KindOf(decl, layout.blocks()) != ParamKind::kHidden) continue;
      if (!IsCut(layout, slab, p)) continue;
      const SlabOnRank here{.rank = rank, .slab = slab};
      if (!UpdatesAlongTensor(layout, here)) continue;
      for (const Part& part : PartsOf(decl)) {
        const CutPart cut(layout, here, p, part);
        if (cut.count == 0) continue;
        exchanges.push_back({.kind = UpdateExchange::Kind::kAllGather,
                             .count = cut.count,
                             .dtype = type});
      }
    }
    return exchanges;
  }

  void Update(Stream& stream, ParamStore& store, int slab,
              const UpdateControl* control, int64_t update) override {
    const std::vector<SlabParam>& params = store.slab(slab).params;
    const Range held = store.held(slab, Plane::kState0);
    const SlabOnRank here = PlaceOf(store, slab);
    for (size_t p = 0; p < params.size(); ++p) {
      const SlabParam& param = params[p];
      const ParamDecl& decl = DeclOf(store, param);
      const bool matrix = KindOf(decl, store.blocks()) == ParamKind::kHidden;
      if (matrix && IsCut(store.layout(), here.slab, p)) {
        UpdateCut(stream, store, slab, p, control, update);
        continue;
      }
      const UpdateRun run = {
          .begin = std::max(held.begin, param.offset),
          .end = std::min(held.end, param.offset + param.elements),
          .hyper = rules().HyperOf(store.registry(), param.decl)};
      if (run.begin >= run.end) continue;
      if (matrix) {
        DELINK_CHECK_EQ(run.end - run.begin, param.elements) << decl.name;
        UpdateMatrix(stream, store, slab, param, control, update);
      } else {
        UpdateByAdamW(stream, store, slab, run, control, update);
      }
    }
  }

 private:
  void UpdateByAdamW(Stream& stream, ParamStore& store, int slab,
                     const UpdateRun& run, const UpdateControl* control,
                     int64_t update) const {
    for (const UpdatedPart& part :
         PartsOf(store, slab, run, control, {rounding(), update})) {
      AdamWArgs args = AdamWArgsOf(part.params);
      args.m = store.at(slab, Plane::kState0, part.begin);
      args.v = store.at(slab, Plane::kState1, part.begin);
      args.lr_scale *= config_.adamw_lr;
      args.beta1 = run.hyper.beta1;
      args.beta2 = run.hyper.beta2;
      args.eps = config_.adamw_eps;
      args.update = update;
      KernelsFor(store).adamw(stream, args);
    }
  }

  void UpdateMatrix(Stream& stream, ParamStore& store, int slab,
                    const SlabParam& param, const UpdateControl* control,
                    int64_t update) const {
    const Hyper hyper = rules().HyperOf(store.registry(), param.decl);
    for (const Part& part : PartsOf(DeclOf(store, param), param.elements)) {
      const int64_t begin = param.offset + part.first_row * part.columns;
      const UpdateRun piece = {
          .begin = begin, .end = begin + part.elements(), .hyper = hyper};
      const UpdatedParams params =
          ParamsOf(store, slab, piece, control, {rounding(), update});
      const OrthogonalMemory at(scratch(), part.rows, part.columns, store,
                                slab);
      void* const u =
          at.u != nullptr ? at.u : store.at(slab, Plane::kGradient, begin);
      Momentum(stream, store, slab, piece, params, u);
      KernelsFor(store).muon_step(
          stream, {.params = params,
                   .x = Orthogonal(stream, store, slab, part, at, u),
                   .narrow = IsNarrow(store, slab),
                   .factor = FactorOf(part)});
    }
  }

  // Updates a matrix that is cut along the tensor axis: u is all-gathered, the
  // ranks that update make all of it orthogonal, and each steps its own pieces.
  void UpdateCut(Stream& stream, ParamStore& store, int slab, size_t p,
                 const UpdateControl* control, int64_t update) const {
    const Layout& layout = store.layout();
    const SlabOnRank here = PlaceOf(store, slab);
    if (!UpdatesAlongTensor(layout, here)) return;
    const SlabParam& param = At(store.slab(slab).params, p);
    VisitGroup& group = tensor_group();
    const DType type = store.dtype(slab, Plane::kState0);
    for (const Part& part : PartsOf(DeclOf(store, param))) {
      const CutPart cut(layout, here, p, part);
      if (cut.count == 0) continue;
      DELINK_CHECK_EQ(group.size(), static_cast<int>(cut.places.size()));
      const OrthogonalMemory at(scratch(), part.rows, part.columns, store, slab,
                                Gathered(layout, cut));
      const CutPart::Place& own = At(cut.places, group.rank());
      const bool has = own.updates && !own.pieces.empty();
      UpdateRun run;
      UpdatedParams params;
      if (has) {
        const int64_t begin = param.offset + own.pieces.front().first;
        run = {.begin = begin,
               .end = begin + ElementsOf(own.pieces),
               .hyper = rules().HyperOf(store.registry(), param.decl)};
        params = ParamsOf(store, slab, run, control, {rounding(), update});
        Momentum(stream, store, slab, run, params,
                 at.x + group.rank() * cut.count * SizeOf(type));
      }
      group.AllGather(at.x, cut.count, type);
      if (!has) continue;
      Bring(stream, store, part, cut, at);
      const void* const x = Orthogonal(stream, store, slab, part, at, at.u);
      char* const rest = x == at.x ? at.y : at.x;
      Take(stream, store, slab, part, own.pieces, x, rest);
      KernelsFor(store).muon_step(stream, {.params = params,
                                           .x = rest,
                                           .narrow = IsNarrow(store, slab),
                                           .factor = FactorOf(part)});
    }
  }

  // Copies the gathered pieces to `u` as one matrix.
  static void Bring(Stream& stream, const ParamStore& store, const Part& part,
                    const CutPart& cut, const OrthogonalMemory& at) {
    const int64_t size = SizeOf(StatisticsOf(store.options().dtype));
    for (size_t i = 0; i < cut.places.size(); ++i) {
      if (!cut.places[i].updates) continue;
      const char* from = at.x + static_cast<int64_t>(i) * cut.count * size;
      for (const MatrixPiece& piece : cut.places[i].pieces) {
        const Rect& rect = piece.rect;
        store.device().CopyRows(stream, {.to = at.u + Number(part, rect) * size,
                                         .to_pitch = part.columns * size,
                                         .from = from,
                                         .from_pitch = rect.columns * size,
                                         .bytes = rect.columns * size,
                                         .rows = rect.rows});
        from += rect.elements() * size;
      }
    }
  }

  // Copies the pieces of matrix `x` to `to`, one after the other.
  static void Take(Stream& stream, const ParamStore& store, int slab,
                   const Part& part, const std::vector<MatrixPiece>& pieces,
                   const void* x, char* to) {
    const int64_t size = SizeOf(store.dtype(slab, Plane::kWeight));
    for (const MatrixPiece& piece : pieces) {
      const Rect& rect = piece.rect;
      store.device().CopyRows(stream, {.to = to,
                                       .to_pitch = rect.columns * size,
                                       .from = static_cast<const char*>(x) +
                                               Number(part, rect) * size,
                                       .from_pitch = part.columns * size,
                                       .bytes = rect.columns * size,
                                       .rows = rect.rows});
      to += rect.elements() * size;
    }
  }

  // The position of a rectangle's first element in the part.
  static int64_t Number(const Part& part, const Rect& rect) {
    return (rect.row - part.first_row) * part.columns + rect.column;
  }

  static int64_t Gathered(const Layout& layout, const CutPart& cut) {
    return layout.mesh().tensor * cut.count;
  }

  void Momentum(Stream& stream, const ParamStore& store, int slab,
                const UpdateRun& run, const UpdatedParams& params,
                void* u) const {
    KernelsFor(store).muon_momentum(
        stream, {.g = params.g,
                 .bf16_g = params.bf16_g,
                 .m = store.at(slab, Plane::kState0, run.begin),
                 .u = u,
                 .n = params.n,
                 .momentum = run.hyper.momentum,
                 .nesterov = config_.nesterov,
                 .control = params.control});
  }

  double FactorOf(const Part& part) const {
    const auto rows = static_cast<double>(part.rows);
    const auto columns = static_cast<double>(part.columns);
    switch (config_.scale) {
      case MuonConfig::Scale::kShape:
        return std::sqrt(std::max(1.0, rows / columns));
      case MuonConfig::Scale::kRms:
        return 0.2 * std::sqrt(std::max(rows, columns));
    }
    return 1;
  }

  // About U V^T of u = U S V^T, in scratch memory.
  const void* Orthogonal(Stream& stream, const ParamStore& store, int slab,
                         const Part& part, const OrthogonalMemory& at,
                         const void* u) const {
    return MakeOrthogonal(stream, store, slab, part.rows, part.columns, at, u,
                          multiply_);
  }

  MuonConfig config_;
  MatrixProductFn multiply_;
};

}  // namespace

std::unique_ptr<SlabOptimizer> NewMuon(const MuonConfig& config,
                                       ParamRules rules,
                                       MatrixProductFn multiply) {
  return std::make_unique<Muon>(config, std::move(rules), multiply);
}

}  // namespace delink
