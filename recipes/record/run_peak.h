// The matmul peak that a run's speed is quoted against: the best that was ever
// measured on this machine, because a machine that is busy while it is measured
// seems slow. What is kept, by machine, device, threads and precision, is JSON
// in matmul_peak.json of the cache's folder (CacheFolder); removing it forgets.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "framework/device/backend.h"
#include "framework/tensor/dtype.h"
#include "parallel/launch/launch.h"

namespace delink {

// What is kept in the file `path` under `key`, or `measured` where that is
// more, which then is kept. A file that cannot be read is taken for empty; one
// that cannot be written is left.
double BestPeak(const std::string& path, const std::string& key,
                double measured);

// FLOP/s of a rank that computes on `device`, on the CPU with `threads`
// threads, which this process has: what is kept, or where nothing is, or with
// `anew`, what is measured now, if that is more. 0 where nothing is kept and
// the device has no room to measure.
double RankPeak(Device& device, DType dtype, int threads, bool anew);

class RunPeak {
 public:
  // Of all ranks, each process measured anew, once. Collective.
  static absl::StatusOr<RunPeak> Measure(World& world, Device& device,
                                         DType dtype, int threads);
  // `flops` of all ranks at first; `again` measures all ranks' anew.
  RunPeak(double flops, std::function<double()> again)
      : flops_(flops), again_(std::move(again)) {}

  // FLOP/s of all ranks.
  double flops() const { return flops_; }
  // Measures again where `flops` were reached and that is more than the peak:
  // at most once in a hundred calls, and on the CPU alone, which has the time
  // and the memory for it. Whether the peak is another now.
  bool Reached(double flops);

 private:
  double flops_;
  std::function<double()> again_;  // empty: not possible
  int pause_ = 0;                  // calls until it may measure again
};

}  // namespace delink
