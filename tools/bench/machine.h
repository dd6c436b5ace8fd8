// What this machine can do: the speeds that everything else is held against.
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

struct MatmulPeak {
  DType dtype = DType::kF32;
  double flops_per_s = 0;
  int64_t size = 0;  // of the square matrices that reached it
};

// Streaming over memory far larger than the caches, on all threads, bytes/s. On
// a GPU all three are that of a copy.
struct Bandwidth {
  double read = 0;    // a sum
  double triad = 0;   // a = b + s c: two bytes read for each one written
  int64_t bytes = 0;  // of each array
};

// One file, written and then read, past the page cache where the file system
// lets us (`direct`); bytes/s.
struct DiskSpeed {
  std::string folder;
  bool direct = false;
  int64_t bytes = 0;
  double write = 0, read = 0;
};

struct Machine {
  std::string device = "cpu";  // cpu, cuda
  std::string processor;       // that computes: of a GPU its name
  std::string host;            // a GPU's
  int64_t cores = 0;           // of the host, that this process may use
  int64_t threads = 0;         // that kernels use, on the CPU
  int64_t memory_bytes = 0;    // of the device, as is the next
  int64_t cache_bytes = 0;     // the largest
  double load = 0;             // runnable threads of a minute, before we began
  std::vector<MatmulPeak> matmul;
  Bandwidth bandwidth;
  DiskSpeed disk;

  // Null when the type was not measured.
  const MatmulPeak* PeakOf(DType dtype) const;
  // Seconds that the work takes at least: its arithmetic at the matmul's peak,
  // or its bytes at the measured bandwidths, whichever is longer. A byte
  // written costs what the triad leaves for it when its reads go at the speed
  // of reading.
  double Roof(const Work& work, DType dtype) const;
  // Whether it is the bytes that bound it.
  bool BoundByMemory(const Work& work, DType dtype) const;

 private:
  double ArithmeticSeconds(const Work& work, DType dtype) const;
  double MemorySeconds(const Work& work) const;
};

// Of the CPU: what one core can use.
int64_t LargestCache();
// Runnable threads of the last minute.
double LoadAverage();
// The best of several sizes of square matrices.
MatmulPeak MeasureMatmul(Device& device, DType dtype, bool quick);

// Whether speeds of the two may be compared as they are.
bool SameMachine(const Machine& a, const Machine& b);

struct MachineOptions {
  int threads = 1;
  std::vector<DType> dtypes;
  std::string folder;  // where the disk is measured
  bool quick = false;  // rough figures, in a fraction of a second
};

// With the target's device as what computes. An error where the folder cannot
// be written. The file is removed.
absl::StatusOr<Machine> MeasureMachine(Target& target,
                                       const MachineOptions& options);

}  // namespace delink::bench
