// Norms of gradients and weights, slab by slab.
#include <cmath>
#include <cstdint>

#include "framework/base/status_macros.h"
#include "framework/step/executor_state.h"

namespace delink {
namespace {

// From the block sums of all slabs, one after the other.
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

}  // namespace

std::vector<double> Executor::SumsOnHost() const {
  std::vector<double> sums(static_cast<size_t>(memory_.sums));
  env_.device->CopyToHost(*compute_stream_, sums.data(), records_->sums,
                          memory_.sums * 8);
  compute_stream_->Synchronize();
  return sums;
}

std::vector<double> Executor::GradientNorms() const {
  const std::vector<double> sums = SumsOnHost();
  const double tokens = sums[sums.size() - kTailSums + 1];
  std::vector<double> norms = NormsOf(env_.store->slabs(), sums);
  for (double& norm : norms) norm /= tokens;
  return norms;
}

absl::StatusOr<std::vector<double>> Executor::WeightNorms() {
  DELINK_RETURN_IF_ERROR(Drain());
  const ParamStore& store = *env_.store;
  // The sums of the step, which GradientNorms reads, are put back.
  const std::vector<double> before = SumsOnHost();
  double* sums = records_->sums;
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const int slab = static_cast<int>(s);
    SumSquares(*compute_stream_, store, slab, store.owned(slab), sums,
               store.master());
    sums += store.slabs()[s].blocks();
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
