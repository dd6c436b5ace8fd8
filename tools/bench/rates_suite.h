// `delink bench --suite machine`: the rates for planning offloading.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "framework/device/backend.h"
#include "offload/rates/machine_rates.h"

namespace delink::bench {

struct RatesOptions {
  DeviceKind device = DeviceKind::kCpu;  // or kCuda
  int threads = 1;                       // of the host
  bool quick = false;                    // rough, in a fraction of a second
  std::string scratch;  // folder where the disk is measured; empty: temporary
};

// Takes two or three minutes. An error if there is no such device or not enough
// memory: 2 blocks of 256 MiB, or of four times the largest cache, on either
// side, or 18 bytes of a quarter as many parameters.
absl::StatusOr<offload::MachineRates> MeasureRates(
    const RatesOptions& options,
    const std::function<void(const std::string&)>& progress);

// Tables for people: the rates, and the number of tokens a step from which each
// transfer or update is free.
std::string ToText(const offload::MachineRates& rates);

}  // namespace delink::bench
