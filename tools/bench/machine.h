// The machine's peak speeds, with which all other measurements are compared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/tensor/dtype.h"
#include "layers/kernels/work.h"
#include "tools/bench/target.h"

namespace delink::bench {

constexpr int64_t kMebibyte = 1 << 20;
constexpr double kGiga = 1e9;
// A machine that had more runnable threads than this before the benchmark, for
// each core or thread of ours, is busy.
constexpr double kBusyLoad = 0.3;

struct MatmulPeak {
  DType dtype = DType::kF32;
  double flops_per_s = 0;
  int64_t size = 0;  // of the square matrices that reached it
};

// Streaming over memory far larger than the caches, on all threads, bytes/s. On
// a GPU both speeds are that of a copy.
struct Bandwidth {
  double read = 0;    // a sum
  double triad = 0;   // a = b + s c: two bytes read for each one written
  int64_t bytes = 0;  // of each array
};

// One file, written, read, and both at once; bytes/s. `direct`: the file system
// let us bypass the page cache.
struct DiskSpeed {
  std::string folder;
  bool direct = false;
  int64_t bytes = 0;
  double write = 0, read = 0;
  double both_write = 0, both_read = 0;  // each while the other is busy
};

struct Machine {
  std::string device = "cpu";  // cpu, cuda
  std::string processor;       // of the device: on a GPU its name
  std::string host;            // on a GPU, the host's processor
  int64_t cores = 0;           // of the host, that this process may use
  int64_t threads = 0;         // of kernels, on the CPU
  int64_t memory_bytes = 0;    // of the device
  int64_t cache_bytes = 0;     // the device's largest cache
  double load = 0;             // runnable threads in the minute before
  std::vector<MatmulPeak> matmul;
  Bandwidth bandwidth;
  DiskSpeed disk;

  // Null when the type was not measured.
  const MatmulPeak* PeakOf(DType dtype) const;
  // The least time of the work in seconds: its arithmetic at the matmul's peak
  // or its bytes at the measured bandwidths, whichever is longer. A byte
  // written costs the triad's time beyond its reads, but at least as much as a
  // byte read.
  double Roof(const Work& work, DType dtype) const;
  // Whether the work is bound by memory.
  bool BoundByMemory(const Work& work, DType dtype) const;

 private:
  double ArithmeticSeconds(const Work& work, DType dtype) const;
  double MemorySeconds(const Work& work) const;
};

// Of the CPU: the largest cache that one core can use.
int64_t LargestCache();
// Runnable threads in the last minute.
double LoadAverage();
// The best of several sizes of square matrices.
MatmulPeak MeasureMatmul(Device& device, DType dtype, bool quick);

// Whether the two machines' times can be compared directly.
bool SameMachine(const Machine& a, const Machine& b);

struct MachineOptions {
  int threads = 1;
  std::vector<DType> dtypes;
  std::string folder;  // where the disk is measured
  bool quick = false;  // rough figures, in a fraction of a second
};

// Measures with the target's device. An error if the folder cannot be written
// to. The file is removed.
absl::StatusOr<Machine> MeasureMachine(Target& target,
                                       const MachineOptions& options);

}  // namespace delink::bench
