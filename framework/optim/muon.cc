#include "framework/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "framework/optim/kernels.h"
#include "framework/optim/updated.h"

namespace delink {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr int kNewtonSchulzSteps = 5;
constexpr int64_t kNormBlock = 4096;  // elements

// A matrix of a parameter and its place in the slab.
struct Part {
  int64_t offset = 0;
  int64_t rows = 0, columns = 0;
  int64_t elements() const { return rows * columns; }
};

std::vector<Part> PartsOf(const ParamDecl& decl, const SlabParam& param) {
  const Shape& shape = decl.spec.shape;
  DELINK_CHECK_EQ(shape.rank(), 2) << decl.name;
  std::vector<int64_t> stacked = decl.spec.stacked;
  if (stacked.empty()) stacked = {shape[0]};
  std::vector<Part> parts;
  int64_t offset = param.offset;
  for (const int64_t rows : stacked) {
    parts.push_back({.offset = offset, .rows = rows, .columns = shape[1]});
    offset += rows * shape[1];
  }
  DELINK_CHECK_EQ(offset, param.offset + param.elements) << decl.name;
  return parts;
}

// Where a matrix is made orthogonal: pieces of the scratch memory.
struct MuonScratch {
  char* x = nullptr;     // [rows, columns]
  char* y = nullptr;     // [rows, columns]
  char* u = nullptr;     // [rows, columns], beside gradients of bf16
  char* gram = nullptr;  // [least, least], least = min(rows, columns)
  char* poly = nullptr;  // [least, least]
  double* sums = nullptr;
  double* scale = nullptr;
  int64_t bytes = 0;

  MuonScratch(char* scratch, const Part& part, const ParamStore& store) {
    const DType dtype = store.dtype(Plane::kWeight);
    const auto take = [&](int64_t size) {
      char* const at = scratch + bytes;
      bytes += AlignUp(size);
      return at;
    };
    const int64_t all = part.elements() * SizeOf(dtype);
    const int64_t least = std::min(part.rows, part.columns);
    const int64_t square = least * least * SizeOf(dtype);
    x = take(all);
    if (HasBf16Gradients(store)) {
      // Read for the last time when y is still to be written.
      u = take(part.elements() * int64_t{sizeof(float)});
      y = u;
    } else {
      y = take(all);
    }
    gram = take(square);
    poly = take(square);
    sums = reinterpret_cast<double*>(
        take((part.elements() + kNormBlock - 1) / kNormBlock * 8));
    scale = reinterpret_cast<double*>(take(8));
  }
};

class Muon final : public SlabOptimizer {
 public:
  Muon(const MuonConfig& config, ParamRules rules, MatrixProductFn multiply)
      : config_(config), rules_(std::move(rules)), multiply_(multiply) {}

  std::vector<StateSpec> states() const override {
    std::vector<StateSpec> moments = TwoMoments();
    moments[1].hidden.extent = StateExtent::kNone;
    return moments;
  }
  WholeTensors whole_tensors() const override { return WholeTensors::kHidden; }

  int64_t ScratchBytes(const ParamStore& store) const override {
    int64_t most = 0;
    for (const Slab& slab : store.slabs()) {
      for (const SlabParam& param : slab.params) {
        const ParamDecl& decl = DeclOf(store, param);
        if (KindOf(decl, store.blocks()) != ParamKind::kHidden) continue;
        for (const Part& part : PartsOf(decl, param)) {
          most = std::max(most, MuonScratch(nullptr, part, store).bytes);
        }
      }
    }
    return most;
  }

  void Update(Stream& stream, ParamStore& store, int slab,
              const UpdateControl* control, int64_t update) override {
    const std::vector<SlabParam>& params = store.slab(slab).params;
    const Range held = store.held(slab, Plane::kState0);
    for (const SlabParam& param : params) {
      const UpdateRun run = {
          .begin = std::max(held.begin, param.offset),
          .end = std::min(held.end, param.offset + param.elements),
          .hyper = rules_.HyperOf(store.registry(), param.decl)};
      if (run.begin >= run.end) continue;
      const ParamDecl& decl = DeclOf(store, param);
      if (KindOf(decl, store.blocks()) == ParamKind::kHidden) {
        DELINK_CHECK_EQ(run.end - run.begin, param.elements) << decl.name;
        UpdateMatrix(stream, store, slab, run, PartsOf(decl, param), control);
      } else {
        UpdateByAdamW(stream, store, slab, run, control, update);
      }
    }
  }

 private:
  void UpdateByAdamW(Stream& stream, ParamStore& store, int slab,
                     const UpdateRun& run, const UpdateControl* control,
                     int64_t update) const {
    const UpdatedParams params = ParamsOf(store, slab, run, control);
    KernelsFor(store).adamw(stream,
                            {.p = params.p,
                             .w = params.w,
                             .g = params.g,
                             .bf16_g = params.bf16_g,
                             .m = store.at(slab, Plane::kState0, run.begin),
                             .v = store.at(slab, Plane::kState1, run.begin),
                             .n = params.n,
                             .lr_scale = params.lr_scale * config_.adamw_lr,
                             .beta1 = run.hyper.beta1,
                             .beta2 = run.hyper.beta2,
                             .eps = config_.adamw_eps,
                             .decay = params.decay,
                             .update = update,
                             .control = control});
  }

  void UpdateMatrix(Stream& stream, ParamStore& store, int slab,
                    const UpdateRun& run, const std::vector<Part>& parts,
                    const UpdateControl* control) const {
    const OptimKernels& kernels = KernelsFor(store);
    for (const Part& part : parts) {
      const UpdateRun piece = {.begin = part.offset,
                               .end = part.offset + part.elements(),
                               .hyper = run.hyper};
      const UpdatedParams params = ParamsOf(store, slab, piece, control);
      const MuonScratch at(scratch(), part, store);
      void* const u = at.u != nullptr
                          ? at.u
                          : store.at(slab, Plane::kGradient, piece.begin);
      kernels.muon_momentum(stream,
                            {.g = params.g,
                             .bf16_g = params.bf16_g,
                             .m = store.at(slab, Plane::kState0, piece.begin),
                             .u = u,
                             .n = params.n,
                             .momentum = run.hyper.momentum,
                             .nesterov = config_.nesterov,
                             .control = control});
      kernels.muon_step(stream, {.params = params,
                                 .x = Orthogonal(stream, store, part, at, u),
                                 .narrow = Narrow(store),
                                 .factor = FactorOf(part)});
    }
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

  // Whether matrices are made orthogonal in bf16.
  static bool Narrow(const ParamStore& store) {
    return store.dtype(Plane::kWeight) == DType::kBF16;
  }

  // About U V^T of u = U S V^T, in scratch memory.
  const void* Orthogonal(Stream& stream, const ParamStore& store,
                         const Part& part, const MuonScratch& at,
                         const void* u) const {
    const OptimKernels& kernels = KernelsFor(store);
    const DType dtype = store.dtype(Plane::kWeight);
    const bool narrow = Narrow(store);
    const int64_t n = part.elements();
    kernels.sum_squares(stream,
                        {.x = u, .n = n, .block = kNormBlock, .sums = at.sums});
    kernels.muon_normalize(stream, {.u = u,
                                    .x = at.x,
                                    .narrow = narrow,
                                    .n = n,
                                    .sums = at.sums,
                                    .count = (n + kNormBlock - 1) / kNormBlock,
                                    .scale = at.scale});
    const bool wide = part.rows <= part.columns;
    const int64_t least = wide ? part.rows : part.columns;
    const int64_t most = wide ? part.columns : part.rows;
    const auto multiply = [&](MatrixProduct product) {
      product.dtype = dtype;
      multiply_(store.device(), stream, product);
    };
    const auto combine = [&](const void* x, void* y, int64_t count, double a,
                             double b) {
      kernels.scale_add(
          stream,
          {.x = x, .y = y, .narrow = narrow, .n = count, .a = a, .b = b});
    };
    char *x = at.x, *y = at.y;
    for (int step = 0; step < kNewtonSchulzSteps; ++step) {
      // With x wide, A = x x^T and x = a x + (b A + c A A) x; else with x^T.
      multiply({.m = least,
                .n = least,
                .k = most,
                .transpose_a = !wide,
                .transpose_b = wide,
                .a = x,
                .b = x,
                .c = at.gram});
      multiply({.m = least,
                .n = least,
                .k = least,
                .a = at.gram,
                .b = at.gram,
                .c = at.poly});
      combine(at.gram, at.poly, least * least, kB, kC);
      multiply({.m = part.rows,
                .n = part.columns,
                .k = least,
                .a = wide ? at.poly : x,
                .b = wide ? x : at.poly,
                .c = y});
      combine(x, y, n, kA, 1);
      std::swap(x, y);
    }
    return x;
  }

  MuonConfig config_;
  ParamRules rules_;
  MatrixProductFn multiply_;
};

}  // namespace

std::unique_ptr<SlabOptimizer> NewMuon(const MuonConfig& config,
                                       ParamRules rules,
                                       MatrixProductFn multiply) {
  return std::make_unique<Muon>(config, std::move(rules), multiply);
}

}  // namespace delink
