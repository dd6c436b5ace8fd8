#include "tools/bench/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "framework/base/machine_memory.h"
#include "framework/base/status_macros.h"
#include "recipes/record/environment.h"
#include "recipes/record/machine_peak.h"
#include "tools/bench/bandwidth.h"
#include "tools/bench/disk.h"

namespace delink::bench {
namespace {

int64_t Cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return sysconf(_SC_NPROCESSORS_ONLN);
}

// Sizes of the square matrices to try.
std::vector<int64_t> MatmulSizes(DeviceKind device, bool quick) {
  if (IsCuda(device)) {
    if (quick) return {64};
    return {2048, 4096, 6144, 8192};
  }
  if (quick) return {256};
  return {512, 768, 1024, 1536, 2048};
}

}  // namespace

// sysconf adds up the caches of a processor's parts, but a core can use only
// its part's. If the system does not say, as much as desktop processors have.
int64_t LargestCache() {
  int64_t largest = 0;
  for (int i = 0;; ++i) {
    std::ifstream in(
        absl::StrCat("/sys/devices/system/cpu/cpu0/cache/index", i, "/size"));
    int64_t size = 0;
    char unit = ' ';
    if (!(in >> size)) break;
    in >> unit;
    largest = std::max(largest, unit == 'K'   ? size << 10
                                : unit == 'M' ? size << 20
                                              : size);
  }
  return largest > 0 ? largest : 32 * kMebibyte;
}

double LoadAverage() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

MatmulPeak MeasureMatmul(Device& device, DType dtype, bool quick) {
  MatmulPeak best{.dtype = dtype};
  for (const int64_t size : MatmulSizes(device.kind(), quick)) {
    const double speed =
        MeasureMatmulPeak(device, dtype, size, /*seconds=*/quick ? 0.01 : 0.3);
    if (speed > best.flops_per_s) {
      best.flops_per_s = speed;
      best.size = size;
    }
  }
  return best;
}

const MatmulPeak* Machine::PeakOf(DType dtype) const {
  for (const MatmulPeak& peak : matmul) {
    if (peak.dtype == dtype) return &peak;
  }
  return nullptr;
}

double Machine::ArithmeticSeconds(const Work& work, DType dtype) const {
  const MatmulPeak* const peak = PeakOf(dtype);
  return peak != nullptr ? work.flops / peak->flops_per_s : 0;
}

double Machine::MemorySeconds(const Work& work) const {
  const double read = 1 / bandwidth.read;
  const double written = std::max(3 / bandwidth.triad - 2 * read, read);
  return work.read * read + work.written * written;
}

double Machine::Roof(const Work& work, DType dtype) const {
  return std::max(ArithmeticSeconds(work, dtype), MemorySeconds(work));
}

bool Machine::BoundByMemory(const Work& work, DType dtype) const {
  return MemorySeconds(work) > ArithmeticSeconds(work, dtype);
}

bool SameMachine(const Machine& a, const Machine& b) {
  if (a.device != b.device || a.processor != b.processor) return false;
  return a.device != "cpu" || (a.cores == b.cores && a.threads == b.threads);
}

absl::StatusOr<Machine> MeasureMachine(Target& target,
                                       const MachineOptions& options) {
  const bool cuda = IsCuda(target.kind());
  const DeviceMemory memory = target.device().memory();
  Machine machine{.device = ToString(target.kind()),
                  .processor = cuda ? target.device().name() : ProcessorName(),
                  .host = cuda ? ProcessorName() : "",
                  .cores = Cores(),
                  .threads = options.threads,
                  .memory_bytes = cuda ? memory.total : MachineMemory(),
                  .cache_bytes = cuda ? memory.cache : LargestCache(),
                  .load = LoadAverage()};
  DELINK_ASSIGN_OR_RETURN(machine.disk,
                          MeasureDisk(options.folder, options.quick));
  for (const DType dtype : options.dtypes) {
    machine.matmul.push_back(
        MeasureMatmul(target.device(), dtype, options.quick));
  }
  const int64_t array =
      options.quick ? 4 * kMebibyte
                    : std::clamp(4 * machine.cache_bytes, 64 * kMebibyte,
                                 machine.memory_bytes / 8);
  const int passes = options.quick ? 3 : 12;
  if (cuda) {
    // Long enough to make a copy's fixed costs negligible.
    const int64_t long_array =
        options.quick
            ? array
            : std::clamp(1024 * kMebibyte, array, machine.memory_bytes / 8);
    DELINK_ASSIGN_OR_RETURN(machine.bandwidth,
                            MeasureCopy(target, long_array, passes));
  } else {
    machine.bandwidth = MeasureBandwidth(options.threads, array, passes);
  }
  return machine;
}

}  // namespace delink::bench
