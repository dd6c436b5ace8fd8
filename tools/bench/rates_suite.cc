#include "tools/bench/rates_suite.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/base/machine_memory.h"
#include "framework/base/status_macros.h"
#include "layers/kernels/find_kernels.h"
#include "recipes/record/environment.h"
#include "recipes/record/machine_peak.h"
#include "recipes/record/rated_device.h"
#include "tools/bench/bandwidth.h"
#include "tools/bench/bus.h"
#include "tools/bench/disk.h"
#include "tools/bench/kernel_rates.h"
#include "tools/bench/machine.h"
#include "tools/bench/target.h"
#include "tools/bench/update_rates.h"

namespace delink::bench {
namespace {

using offload::MachineRates;
using offload::UpdatePlace;

// Bytes of a copied block, and of an array in the host's memory.
int64_t BlockBytes(bool quick) {
  if (quick) return 4 * kMebibyte;
  return std::clamp(4 * LargestCache(), 256 * kMebibyte, 1024 * kMebibyte);
}

// Products whose smallest size is one of these, and large ones.
void MeasureProducts(Device& device, bool quick, MachineRates* rates) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    if (FindKernels(device.kind(), dtype) == nullptr) continue;
    const MatmulPeak large = MeasureMatmul(device, dtype, quick);
    for (const int64_t rows : {16, 128}) {
      if (rows >= large.size) continue;
      rates->matmul.push_back(
          {.dtype = dtype,
           .flops_per_s = MeasureMatmulPeak(device, dtype, large.size,
                                            quick ? 0.01 : 0.3, rows),
           .smallest = rows});
    }
    rates->matmul.push_back({.dtype = dtype,
                             .flops_per_s = large.flops_per_s,
                             .smallest = large.size});
  }
}

// The memory of the device, and of its host.
absl::Status MeasureMemory(Target& target, const RatesOptions& options,
                           MachineRates* rates) {
  const int64_t bytes = BlockBytes(options.quick);
  const int passes = options.quick ? 3 : 9;
  DELINK_ASSIGN_OR_RETURN(rates->memory,
                          MeasureHostMemory(options.threads, bytes, passes));
  rates->host_bytes = MachineMemory();
  rates->tier = {.memory = rates->host_bytes,
                 .bytes_per_s = rates->memory.rewrite};
  if (!IsCuda(options.device)) return absl::OkStatus();
  DELINK_ASSIGN_OR_RETURN(const Bandwidth copy,
                          MeasureCopy(target, bytes, passes));
  rates->tier = {.memory = target.device().memory().total,
                 .bytes_per_s = copy.triad};
  return absl::OkStatus();
}

absl::Status MeasureFiles(const RatesOptions& options, MachineRates* rates) {
  DELINK_ASSIGN_OR_RETURN(const DiskSpeed disk,
                          MeasureDisk(options.scratch, options.quick));
  std::error_code error;
  const auto space = std::filesystem::space(disk.folder, error);
  rates->disk = {
      .bytes = error ? disk.bytes : static_cast<int64_t>(space.capacity),
      .read = disk.read,
      .write = disk.write,
      .both_read = disk.both_read,
      .both_write = disk.both_write};
  return absl::OkStatus();
}

absl::Status MeasureUpdates(Target& target, std::vector<UpdatePlace> places,
                            bool quick, MachineRates* rates) {
  // An f32 plane of a block's bytes.
  const int64_t parameters = quick ? 1 << 14 : BlockBytes(quick) / 4;
  for (const offload::ParamForms& forms : RatedForms()) {
    DELINK_ASSIGN_OR_RETURN(
        const double rate,
        MeasureUpdate(target, forms, parameters, quick ? 0.01 : 0.3));
    for (const UpdatePlace place : places) {
      rates->updates.push_back(
          {.place = place, .forms = forms, .params_per_s = rate});
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MachineRates> MeasureRates(
    const RatesOptions& options,
    const std::function<void(const std::string&)>& progress) {
  const bool cuda = IsCuda(options.device), quick = options.quick;
  DELINK_ASSIGN_OR_RETURN(Target target, Target::Open(options.device));
  MachineRates rates{.version = "delink " + DelinkVersion(),
                     .time = UtcNow(),
                     .device = RatedDeviceOf(target.device()),
                     .threads = options.threads,
                     .load = LoadAverage(),
                     .quick = quick};
  progress("measuring copies");
  DELINK_ASSIGN_OR_RETURN(const BusMeasure bus,
                          MeasureBus(target, {.bytes = BlockBytes(quick),
                                              .seconds = quick ? 0.002 : 0.1,
                                              .samples = quick ? 3 : 5}));
  rates.pinned = bus.pinned;
  rates.pageable = bus.pageable;
  rates.pinned_memory = bus.pinned_memory;
  progress("measuring memory");
  DELINK_RETURN_IF_ERROR(MeasureMemory(target, options, &rates));
  progress("measuring the disk");
  DELINK_RETURN_IF_ERROR(MeasureFiles(options, &rates));
  progress("measuring products and updates");
  MeasureProducts(target.device(), quick, &rates);
  DELINK_ASSIGN_OR_RETURN(
      rates.kernels,
      MeasureKernels(target, {.threads = options.threads, .quick = quick},
                     progress));
  if (!cuda) {
    // On the CPU, host and device are the same processor.
    DELINK_RETURN_IF_ERROR(MeasureUpdates(
        target, {UpdatePlace::kHost, UpdatePlace::kDevice}, quick, &rates));
    return rates;
  }
  DELINK_RETURN_IF_ERROR(
      MeasureUpdates(target, {UpdatePlace::kDevice}, quick, &rates));
  DELINK_ASSIGN_OR_RETURN(Target host, Target::Open(DeviceKind::kCpu));
  DELINK_RETURN_IF_ERROR(
      MeasureUpdates(host, {UpdatePlace::kHost}, quick, &rates));
  return rates;
}

}  // namespace delink::bench
