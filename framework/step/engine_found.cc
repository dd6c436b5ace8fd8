// What passes other than a step find: a few numbers on the host, which their
// instructions leave and kSum brings together. The host waits for the device in
// each of these.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "framework/base/at.h"
#include "framework/step/engine_state.h"
#include "framework/tensor/bfloat16.h"

namespace delink {
namespace {

// Of host memory.
double ValueAt(const char* values, DType dtype, size_t i) {
  switch (dtype) {
    case DType::kF64:
      return reinterpret_cast<const double*>(values)[i];
    case DType::kBF16:
      return float{reinterpret_cast<const BFloat16*>(values)[i]};
    default:
      DELINK_CHECK(dtype == DType::kF32) << ToString(dtype);
      return reinterpret_cast<const float*>(values)[i];
  }
}

// Whether all elements of a device tensor are finite.
bool AllFinite(Device& device, Stream& stream, const Tensor& x) {
  const auto n = static_cast<size_t>(x.elements());
  std::vector<char> bytes(static_cast<size_t>(x.bytes()));
  device.CopyToHost(stream, bytes.data(), x.data(), x.bytes());
  stream.Synchronize();
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(ValueAt(bytes.data(), x.dtype(), i))) return false;
  }
  return true;
}

}  // namespace

// Only the first of a rank counts.
void Engine::Inspect(const Pass& pass, int32_t index) {
  if (found_.not_finite >= 0) return;
  const Instruction& at = At(pass.program.instructions, index);
  const Tensor given = InputTensor(pass, at.layer + 1, at.micro_batch);
  if (!AllFinite(*env_.device, *compute_stream_, given)) {
    found_.not_finite = index;
  }
}

std::vector<double> Engine::SumLosses() {
  LossRecord record;
  env_.device->CopyToHost(*compute_stream_, &record, records_->loss,
                          sizeof(record));
  compute_stream_->Synchronize();
  return {record.loss_sum, static_cast<double>(record.tokens)};
}

absl::Status Engine::Sum(const Pass& pass) {
  ReduceOp op = ReduceOp::kSum;
  if (pass.program.kind == PassKind::kEvaluation) {
    numbers_ = SumLosses();
  } else {
    // The lowest rank's, of a rank its first.
    op = ReduceOp::kMin;
    const auto count = static_cast<int64_t>(pass.program.instructions.size());
    const int64_t rank =
        found_.not_finite < 0 ? env_.compute->size() : env_.compute->rank();
    numbers_ = {static_cast<double>(rank * count +
                                    std::max<int64_t>(found_.not_finite, 0))};
  }
  return env_.compute
      ->AllReduce(numbers_.data(), static_cast<int64_t>(numbers_.size()),
                  DType::kF64, op)
      ->Wait();
}

}  // namespace delink
