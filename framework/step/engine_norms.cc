// Norms of gradients and weights, slab by slab.
#include <cmath>
#include <cstdint>

#include "framework/base/status_macros.h"
#include "framework/step/engine_state.h"

namespace delink {
std::vector<double> NormsOf(const std::vector<Slab>& slabs,
                            const std::vector<double>& sums) {
  std::vector<double> norms;
  size_t at = 0;
  for (const Slab& slab : slabs) {
    double squares = 0;
    for (int64_t i = 0; i < slab.blocks(); ++i) squares += sums[at++];
    norms.push_back(std::sqrt(squares));
  }
  return norms;
}

std::vector<double> Engine::SumsOnHost() const {
  std::vector<double> sums(static_cast<size_t>(memory_.sums));
  env_.device->CopyToHost(*compute_stream_, sums.data(), records_->sums,
                          memory_.sums * 8);
  compute_stream_->Synchronize();
  return sums;
}

absl::StatusOr<std::vector<double>> Engine::WeightNorms() {
  DELINK_RETURN_IF_ERROR(Drain());
  const ParamStore& store = *env_.store;
  // The sums of the step, which GradientNorms reads, are put back.
  const std::vector<double> before = SumsOnHost();
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const int slab = static_cast<int>(s);
    SumSquares(*compute_stream_, store, slab, store.owned(slab),
               records_->squares[s], store.master());
  }
  if (env_.compute->size() > 1) {
    DELINK_RETURN_IF_ERROR(compute_exchange_->AllReduce(
        records_->sums, memory_.sums - kTailSums, DType::kF64, ReduceOp::kSum));
  }
  const std::vector<double> norms = NormsOf(store.slabs(), SumsOnHost());
  env_.device->CopyFromHost(*compute_stream_, records_->sums, before.data(),
                            memory_.sums * 8);
  compute_stream_->Synchronize();
  return norms;
}

}  // namespace delink
