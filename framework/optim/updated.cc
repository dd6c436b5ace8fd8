#include "framework/optim/updated.h"

#include "framework/base/check.h"
#include "framework/optim/find_kernels.h"

namespace delink {

namespace {

const OptimKernels& KernelsOf(const ParamStore& store, DeviceKind kind) {
  const DType dtype = StatisticsOf(store.dtype(Plane::kWeight));
  const OptimKernels* const kernels = FindOptimKernels(kind, dtype);
  DELINK_CHECK(kernels != nullptr)
      << "no optimizer for " << ToString(dtype) << " on " << ToString(kind);
  return *kernels;
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

bool HasBf16Gradients(const ParamStore& store) {
  return store.dtype(Plane::kGradient) == DType::kBF16;
}

UpdatedParams ParamsOf(const ParamStore& store, int slab, const UpdateRun& run,
                       const UpdateControl* control) {
  const Plane master = store.master();
  DELINK_CHECK(store.dtype(master) == StatisticsOf(store.dtype(Plane::kWeight)))
      << "only AdamW updates a master that is not whole";
  return {.p = store.at(slab, master, run.begin),
          .w = master == Plane::kWeight
                   ? nullptr
                   : store.at(slab, Plane::kWeight, run.begin),
          .g = store.at(slab, Plane::kGradient, run.begin),
          .bf16_g = HasBf16Gradients(store),
          .n = run.end - run.begin,
          .lr_scale = run.hyper.lr_scale,
          .decay = run.hyper.decay,
          .control = control};
}

}  // namespace delink
