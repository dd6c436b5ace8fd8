// What this machine was measured to do, for who decides what lives where:
// `delink bench --suite machine` writes it as a small JSON file, and planners
// read it, so that a plan is a function of files and not of the moment.
//
// All rates are medians, in units a second, of data that is not zero and of
// memory much larger than the caches. The file names the device, so that
// another's is not taken for it, and no machine.
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

// Of copies between host and device, bytes/s: each direction alone, and both
// at once. On the CPU, whose device memory is the host's too, of copies by the
// processor.
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

// AdamW in one pass over parameters and state that are where it runs.
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
  bool pinned_memory = false;  // whether `pinned` is that, or was refused
  BusRates pinned, pageable;
  HostMemoryRates memory;
  std::vector<MatmulRate> matmul;  // on the device
  std::vector<UpdateRate> updates;

  // 0 where it was not measured.
  double FlopsOf(DType dtype) const;
  double ParamsPerSecond(UpdatePlace place, const ParamForms& forms) const;
};

// $XDG_CACHE_HOME/delink/machine.json, else below ~/.cache. FailedPrecondition
// where the environment names no home.
absl::StatusOr<std::string> DefaultMachineRatesPath();

std::string ToJson(const MachineRates& rates);
// InvalidArgument, with `origin` and how to mend it, where the text is not all
// of such a file.
absl::StatusOr<MachineRates> ParseMachineRates(std::string_view text,
                                               const std::string& origin);

// Makes the folder; a file that is there is replaced at once or not at all.
absl::Status WriteMachineRates(const MachineRates& rates,
                               const std::string& path);
// Of `device`. NotFound: no such file. InvalidArgument: it is damaged.
// FailedPrecondition: it is another device's. Each says what to run.
absl::StatusOr<MachineRates> ReadMachineRates(const std::string& path,
                                              const RatedDevice& device);

}  // namespace delink::offload
