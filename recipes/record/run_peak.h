// The matmul peak to which a run's speed is compared. It is the best ever
// measured on this machine, because a machine that is busy during the
// measurement seems slow. Peaks are stored by machine, device, threads and
// precision, as JSON in matmul_peak.json of the cache folder (CacheFolder).
// Removing that file discards them.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "framework/device/backend.h"
#include "framework/tensor/dtype.h"
#include "parallel/launch/launch.h"

namespace delink {

// The value stored in the file `path` under `key`, or `measured` if that is
// larger; then it is stored. An unreadable file counts as empty. A failure to
// write is ignored.
double BestPeak(const std::string& path, const std::string& key,
                double measured);

// FLOP/s of a rank on `device`; on the CPU with `threads` threads, which this
// process has. Returns the stored peak. Without one, or with `anew` (once per
// process), measures now and returns the larger value. 0 if none is stored and
// the device has no room to measure.
double RankPeak(Device& device, DType dtype, int threads, bool anew);

class RunPeak {
 public:
  // The peak of all ranks. Each process measures anew, once. Collective.
  static absl::StatusOr<RunPeak> Measure(World& world, Device& device,
                                         DType dtype, int threads);
  // `flops`: the initial peak of all ranks; `again` measures it anew.
  RunPeak(double flops, std::function<double()> again)
      : flops_(flops), again_(std::move(again)) {}

  // FLOP/s of all ranks.
  double flops() const { return flops_; }
  // If the reached `flops` exceed the peak, measures again: at most once in a
  // hundred calls, and only on the CPU, which has the time and memory for it.
  // Returns whether the peak changed.
  bool Reached(double flops);

 private:
  double flops_;
  std::function<double()> again_;  // empty: not possible
  int pause_ = 0;                  // calls until it may measure again
};

}  // namespace delink
