// Identifies the device of a file of measured rates.
#pragma once

#include "framework/device/backend.h"
#include "offload/rates/machine_rates.h"
#include "recipes/record/environment.h"

namespace delink {

inline offload::RatedDevice RatedDeviceOf(const Device& device) {
  if (IsCuda(device.kind())) return {.kind = "cuda", .name = device.name()};
  return {.kind = "cpu", .name = ProcessorName()};
}

}  // namespace delink
