// How far the gradients of layers that share agree. A step adds them up where
// they are made, so it never holds one layer's alone; a probe runs one
// micro-batch and lets each visit write its own to scratch memory.
#include <algorithm>
#include <cstdint>

#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/optim/find_kernels.h"
#include "framework/step/engine_state.h"

namespace delink {
namespace {

int64_t GradientBytes(const ParamStore& store, int slab) {
  const Slab& s = store.slab(slab);
  const int ranks = GroupSize(store, slab);
  return AlignUp(s.ShardElements(ranks) * ranks *
                 SizeOf(store.dtype(Plane::kGradient)));
}

// Blocks that use each slab.
std::vector<int> SharersOf(const ParamStore& store) {
  std::vector<int> sharers(store.slabs().size(), 0);
  for (int layer = 1; layer <= store.blocks(); ++layer) {
    for (const int slab : store.slabs_of_layer(layer)) {
      ++At(sharers, slab);
    }
  }
  return sharers;
}

// Of the layer's visits in a step: whether it recomputes.
uint8_t FlagsOf(const Program& program, int layer) {
  for (const Instruction& at : program.instructions) {
    if (at.op == Op::kForward && at.layer == layer) return at.flags;
  }
  return 0;
}

bool Shared(const std::vector<int>& sharers, int slab) {
  return At(sharers, slab) > 1;
}

}  // namespace

int64_t ProbeBytes(const ParamStore& store) {
  const std::vector<int> sharers = SharersOf(store);
  int64_t most = 0;
  for (int layer = 1; layer <= store.blocks(); ++layer) {
    int64_t bytes = 0;
    for (const int slab : store.slabs_of_layer(layer)) {
      if (Shared(sharers, slab)) bytes += GradientBytes(store, slab);
    }
    most = std::max(most, bytes);
  }
  return most;
}

double Engine::SumSquaresOf(const Slab& slab, const void* gradient) {
  const DType dtype = env_.store->dtype(Plane::kGradient);
  const OptimKernels* const kernels =
      FindOptimKernels(env_.device->kind(), StatisticsOf(dtype));
  DELINK_CHECK(kernels != nullptr);
  SumSquaresArgs args{
      .n = slab.elements, .block = slab.block, .sums = records_->sums};
  if (dtype == DType::kBF16) {
    args.w = static_cast<const uint16_t*>(gradient);
  } else {
    args.x = gradient;
  }
  kernels->sum_squares(*compute_stream_, args);
  std::vector<double> sums(static_cast<size_t>(slab.blocks()));
  env_.device->CopyToHost(*compute_stream_, sums.data(), records_->sums,
                          slab.blocks() * 8);
  compute_stream_->Synchronize();
  double sum = 0;
  for (const double block : sums) sum += block;
  return sum;
}

// Backward of one block: its gradients go to scratch memory, are measured, and
// added up in the slabs' planes. `begun` says which planes hold a sum already.
void Engine::ProbeLayer(const Pass& like, int layer,
                        const std::vector<int>& sharers,
                        std::vector<bool>& begun,
                        std::vector<Agreement>& found) {
  ParamStore& store = *env_.store;
  const DType dtype = store.dtype(Plane::kGradient);
  const std::vector<int>& slabs = store.slabs_of_layer(LayerAt(layer));
  std::vector<void*> scratch(slabs.size(), nullptr);
  int64_t offset = 0;
  for (size_t i = 0; i < slabs.size(); ++i) {
    if (!Shared(sharers, slabs[i])) continue;
    scratch[i] = copies_.at(offset);
    offset += GradientBytes(store, slabs[i]);
  }
  // Padding between parameters counts nothing.
  env_.device->FillZero(*compute_stream_, copies_.data(), offset);
  Backward(like,
           {.op = Op::kBackward,
            .flags = FlagsOf(like.program, layer),
            .layer = layer,
            .micro_batch = 0},
           std::vector<bool>(slabs.size(), false), &scratch);
  for (size_t i = 0; i < slabs.size(); ++i) {
    if (scratch[i] == nullptr) continue;
    const auto s = static_cast<size_t>(slabs[i]);
    const Slab& slab = store.slabs()[s];
    void* const sum = store.at(slabs[i], Plane::kGradient, 0);
    if (begun[s]) {
      env_.accumulate(*env_.device, *compute_stream_, dtype, sum, scratch[i],
                      slab.elements);
    } else {
      env_.device->Copy(*compute_stream_, sum, scratch[i],
                        slab.elements * SizeOf(dtype));
    }
    begun[s] = true;
    found[s].apart += SumSquaresOf(slab, scratch[i]);
  }
}

absl::StatusOr<std::vector<SlabAgreement>> Engine::Probe(const Pass& like,
                                                         const HostBatch& batch,
                                                         int64_t step) {
  DELINK_RETURN_IF_ERROR(Drain());
  Load(batch, step, {});
  const std::vector<int> sharers = SharersOf(*env_.store);
  const int32_t last = static_cast<int32_t>(layers_.size()) - 1;
  for (int32_t layer = 0; layer < last; ++layer) {
    Forward(like, {.op = Op::kForward,
                   .flags = FlagsOf(like.program, layer),
                   .layer = layer,
                   .micro_batch = 0});
  }
  Loss(like, {.op = Op::kLoss, .layer = last, .micro_batch = 0},
       std::vector<bool>(env_.store->slabs_of_layer(LayerAt(last)).size(),
                         false));
  std::vector<Agreement> found(sharers.size());
  std::vector<bool> begun(sharers.size(), false);
  for (int32_t layer = last - 1; layer > 0; --layer) {
    ProbeLayer(like, layer, sharers, begun, found);
  }
  std::vector<double> sums;
  for (size_t s = 0; s < found.size(); ++s) {
    const auto slab = static_cast<int>(s);
    if (!Shared(sharers, slab)) continue;
    sums.push_back(SumSquaresOf(env_.store->slabs()[s],
                                env_.store->at(slab, Plane::kGradient, 0)));
    sums.push_back(found[s].apart);
  }
  compute_stream_->Synchronize();
  DELINK_RETURN_IF_ERROR(env_.compute
                             ->AllReduce(sums.data(),
                                         static_cast<int64_t>(sums.size()),
                                         DType::kF64, ReduceOp::kSum)
                             ->Wait());
  std::vector<SlabAgreement> result;
  for (size_t s = 0, i = 0; s < found.size(); ++s) {
    if (!Shared(sharers, static_cast<int>(s))) continue;
    result.push_back({.slab = static_cast<int>(s),
                      .sharers = sharers[s],
                      .of = {.together = sums[i], .apart = sums[i + 1]}});
    i += 2;
  }
  return result;
}

}  // namespace delink
