// Where a rank computes, as `run.device` or --device says.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "framework/device/backend.h"
#include "framework/step/slow_bus.h"
#include "parallel/launch/launch.h"
#include "recipes/schema/recipe.h"

namespace delink {

struct DeviceChoice {
  RunConfig::Device device = RunConfig::Device::kAuto;
  // Ranks of a machine that may share a GPU.
  int64_t ranks_per_gpu = 1;
};

// "auto", "cpu" or "cuda"; anything else: nothing.
std::optional<RunConfig::Device> ParseDevice(std::string_view name);

// The device of this rank: kAuto takes a GPU where this build and this machine
// have one that can be used, else the CPU; the ranks of a machine take its GPUs
// in turn. InvalidArgument: more ranks than the GPUs may have, or some ranks
// have a GPU and others none. Collective of all ranks.
absl::StatusOr<std::unique_ptr<Device>> ChooseDevice(const DeviceChoice& choice,
                                                     World& world);

// The CPU, or the CUDA device of that number. Unavailable and its kin where
// there is none, or a library is missing that its kernels call.
absl::StatusOr<std::unique_ptr<Device>> NewDeviceOf(DeviceKind kind,
                                                    int ordinal = 0);

// The bus of this device as slow as DELINK_BUS says in this rank's environment,
// "0.0001,1e9" (framework/step/slow_bus.h); null where it is not set.
// InvalidArgument where it says something else, FailedPrecondition where the
// device is not the CPU.
absl::StatusOr<std::unique_ptr<SlowBus>> SlowBusAsAsked(const Device& device,
                                                        const World& world);

// Ranks that compute on the device of this one, itself among them.
int RanksOnDevice(const Device& device, const World& world);

// The kind that ChooseDevice would take for one rank, without taking it.
DeviceKind KindOfChoice(RunConfig::Device device);

}  // namespace delink
