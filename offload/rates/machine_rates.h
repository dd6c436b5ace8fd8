// The measured rates of this machine, which planners need to place planes.
// `delink bench --suite machine` writes them into a small JSON file and
// planners read it, so that a plan depends on files and not on the moment.
//
// All rates are medians, in units a second, with data that is not zero and
// memory much larger than the caches. The file names the device, so that rates
// of another device are refused. It names no machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

struct MatmulRate {
  DType dtype = DType::kF32;
  double flops_per_s = 0;
};

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

struct MachineRates {
  std::string version, time;  // of the program that measured, and when, UTC
  RatedDevice device;
  int64_t threads = 0;  // of the host, for its memory, products and updates
  double load = 0;      // runnable threads of a minute, before it began
  bool quick = false;   // rough, of small memory
  bool pinned_memory = false;  // false: pinning was refused
  BusRates pinned, pageable;
  HostMemoryRates memory;
  std::vector<MatmulRate> matmul;  // on the device
  std::vector<UpdateRate> updates;

  // 0 if it was not measured.
  double FlopsOf(DType dtype) const;
  double ParamsPerSecond(UpdatePlace place, const ParamForms& forms) const;
};

// $XDG_CACHE_HOME/delink/machine.json, else below ~/.cache. FailedPrecondition:
// the environment names no home folder.
absl::StatusOr<std::string> DefaultMachineRatesPath();

std::string ToJson(const MachineRates& rates);
// InvalidArgument, with `origin` and the remedy: the text is no complete file
// of rates.
absl::StatusOr<MachineRates> ParseMachineRates(std::string_view text,
                                               const std::string& origin);

// Makes the folder. An existing file is replaced atomically.
absl::Status WriteMachineRates(const MachineRates& rates,
                               const std::string& path);
// The rates of `device`. NotFound: no such file. InvalidArgument: it is
// damaged. FailedPrecondition: it has another device's rates. Each says what to
// run.
absl::StatusOr<MachineRates> ReadMachineRates(const std::string& path,
                                              const RatedDevice& device);

}  // namespace delink::offload
