// A machine as planners see it: its devices, memory, network and rates.
//
// `delink bench --suite machine` measures this machine and writes its file, and
// planners read it, so that a plan depends on files and not on the moment. A
// file can describe any other machine too (recipes/schema/machine_file.h).
//
// Measured rates are medians, in units a second, with data that is not zero and
// memory much larger than the caches. Optional values that a file leaves out
// are 0 or empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/device/work.h"
#include "framework/tensor/dtype.h"
#include "offload/rates/param_forms.h"

namespace delink::offload {

// Of copies between host and device, bytes/s: each direction alone, and both at
// once. On the CPU, whose device memory is host memory, the processor copies.
struct BusRates {
  double to_device = 0, to_host = 0;
  double both_to_device = 0, both_to_host = 0;
};

// Of the host's memory, bytes/s, on all threads together.
struct HostMemoryRates {
  double read = 0;     // a sum
  double write = 0;    // of what was not read; plain stores
  double rewrite = 0;  // in place, as an update does; bytes read and written
  double triad = 0;    // a = b + s c: three arrays' bytes
};

// Of a matrix product [m, k] x [k, n] on one device.
struct MatmulRate {
  DType dtype = DType::kF32;
  double flops_per_s = 0;
  // The smallest of m, n and k, if the others are large: the class of shapes.
  int64_t smallest = 1024;
};

// A call of a kernel, alone on its device, on operands that the call before did
// not touch (framework/device/work.h has the kernels' names and sizes).
struct KernelRate {
  std::string kernel;
  DType dtype = DType::kF32;
  int64_t threads = 1;  // on a CPU
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  double flops = 0, read = 0, written = 0;
  double seconds = 0;
  friend bool operator==(const KernelRate&, const KernelRate&) = default;
};
KernelRate RateOfCall(const Work& work, int64_t threads, double seconds);

enum class UpdatePlace : uint8_t { kHost, kDevice };

// AdamW in one pass over parameters and state in the memory where it runs.
struct UpdateRate {
  UpdatePlace place = UpdatePlace::kHost;
  ParamForms forms;
  double params_per_s = 0;
};

struct RatedDevice {
  std::string kind;  // "cpu", "cuda"
  std::string name;  // of the GPU; else of the processor
  friend bool operator==(const RatedDevice&, const RatedDevice&) = default;
};

// The devices of a machine, all alike.
struct DeviceTier {
  int64_t memory = 0;      // bytes
  double bytes_per_s = 0;  // read and written
  // Compute capability of CUDA.
  std::optional<double> capability;
  std::optional<double> price;  // of an hour
  std::optional<double> watts;
};

struct DiskRates {
  int64_t bytes = 0;                     // of a node; 0: none
  double read = 0, write = 0;            // bytes/s
  double both_read = 0, both_write = 0;  // each while the other is busy
};

struct NetworkRates {
  double latency = 0;      // seconds
  double bytes_per_s = 0;  // of a link, each way; 0: not known
  int64_t links = 0;       // of a node, between nodes
};

// A node whose devices and memory are slower than those of the others.
struct SlowNode {
  int64_t node = 0;
  double speed = 1;  // above 0, at most 1
};

// The kernels run from this compute capability on.
inline constexpr double kLeastCapability = 8.0;

struct MachineRates {
  // Of the measurement, if there was one: the program, and when, UTC.
  std::string version, time;
  std::string name;  // of the machine; empty: this one
  int64_t nodes = 1;
  int64_t devices = 1;  // of a node; the CPU of a node is one
  RatedDevice device;
  DeviceTier tier;
  int64_t host_bytes = 0;  // of a node
  int64_t threads = 0;     // of the host, for its memory, products and updates
  double load = 0;         // runnable threads in the minute before
  bool quick = false;      // a rough measurement
  // Whether the driver pinned memory; if not, `pinned` is of other memory.
  bool pinned_memory = false;
  BusRates pinned, pageable;  // of a device; pageable is optional
  HostMemoryRates memory;     // rewrite; the others are optional
  DiskRates disk;
  NetworkRates inside, between;    // a node, nodes
  std::vector<MatmulRate> matmul;  // on the device
  std::vector<UpdateRate> updates;
  std::vector<KernelRate> kernels;  // on the device; optional
  // Least seconds of a call, unless it was measured: of its launch; optional.
  double kernel_latency = 0;
  std::vector<SlowNode> slow;  // each node at most once

  // Of the largest products. 0: not known.
  double FlopsOf(DType dtype) const;
  // Of products whose smallest size is `smallest`, interpolated between the
  // classes in the logarithm of both.
  double FlopsOf(DType dtype, int64_t smallest) const;
  // 0 if it was not measured.
  double ParamsPerSecond(UpdatePlace place, const ParamForms& forms) const;
  double SpeedOf(int64_t node) const;
  // Ranks that it has room for: one a device, on the CPU one a thread.
  int64_t RanksOfNode() const;
  int64_t ranks() const { return nodes * RanksOfNode(); }
  // Whether the program's kernels run there; else it is for plans only.
  bool runs() const {
    return tier.capability.value_or(kLeastCapability) >= kLeastCapability;
  }
};

// $XDG_CACHE_HOME/delink/machine.toml, else below ~/.cache. FailedPrecondition:
// the environment names no home folder.
absl::StatusOr<std::string> DefaultMachineRatesPath();

}  // namespace delink::offload
