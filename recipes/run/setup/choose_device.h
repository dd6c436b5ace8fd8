// The device of a rank, as `run.device` or --device says.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "framework/device/backend.h"
#include "framework/step/engine/slow_bus.h"
#include "parallel/launch/launch.h"
#include "recipes/schema/recipe.h"

namespace delink {

struct DeviceChoice {
  RunConfig::Device device = RunConfig::Device::kAuto;
  // Ranks of a machine that may share a GPU.
  int64_t ranks_per_gpu = 1;
};

// "auto", "cpu" or "cuda"; nullopt for anything else.
std::optional<RunConfig::Device> ParseDevice(std::string_view name);

// The device of this rank. kAuto takes a GPU if this build supports it and this
// machine has a usable one, else the CPU. The ranks of a machine take its GPUs
// in turn. InvalidArgument: more ranks than the GPUs may have, or some ranks
// have a GPU and others none. Collective over all ranks.
absl::StatusOr<std::unique_ptr<Device>> ChooseDevice(const DeviceChoice& choice,
                                                     World& world);

// The CPU, or the CUDA device of that number. An error such as Unavailable if
// there is none, or if a library that its kernels call is missing.
absl::StatusOr<std::unique_ptr<Device>> NewDeviceOf(DeviceKind kind,
                                                    int ordinal = 0);

// A bus as slow as DELINK_BUS in this rank's environment says, "0.0001,1e9"
// (framework/step/engine/slow_bus.h); null if it is not set. InvalidArgument if
// it does not parse, FailedPrecondition if the device is not the CPU.
absl::StatusOr<std::unique_ptr<SlowBus>> SlowBusAsAsked(const Device& device,
                                                        const World& world);

// Ranks that compute on this rank's device, including this rank.
int RanksOnDevice(const Device& device, const World& world);

// The kind that ChooseDevice would take for one rank, without taking it.
DeviceKind KindOfChoice(RunConfig::Device device);

}  // namespace delink
