// Norms of gradients and weights, by logical slab.
#include <cmath>
#include <cstdint>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/step/engine/engine_state.h"

namespace delink {

std::vector<double> NormsOf(const Layout& layout,
                            const std::vector<double>& sums) {
  std::vector<double> norms;
  for (size_t s = 0; s < layout.slabs().size(); ++s) {
    const Range cells = layout.CellsOfLogical(static_cast<int>(s));
    double squares = 0;
    for (int64_t i = cells.begin; i < cells.end; ++i) squares += At(sums, i);
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
  ClearSums();
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const int slab = static_cast<int>(s);
    SumSquares(*compute_stream_, store, slab, store.owned(slab),
               records_->squares[s], store.master(slab));
  }
  if (const auto exchange = ExchangeSums(env_.store->layout().cells())) {
    DELINK_RETURN_IF_ERROR(exchange->Wait());
  }
  const std::vector<double> norms = NormsOf(store.layout(), SumsOnHost());
  PutSums(before);
  return norms;
}

void Engine::PutSums(const std::vector<double>& sums) {
  DELINK_CHECK_EQ(static_cast<int64_t>(sums.size()), memory_.sums);
  env_.device->CopyFromHost(*compute_stream_, records_->sums, sums.data(),
                            memory_.sums * 8);
  compute_stream_->Synchronize();
}

}  // namespace delink
