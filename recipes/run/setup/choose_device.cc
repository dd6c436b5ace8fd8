#include "recipes/run/setup/choose_device.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "framework/comm/link.h"
#include "layers/kernels/find_kernels.h"
#include "parallel/launch/launcher.h"
#include "recipes/schema/describe.h"

namespace delink {
namespace {

using Choice = RunConfig::Device;

absl::Status CheckRanks(int ranks, int devices, int64_t ranks_per_gpu) {
  if (ranks <= devices * ranks_per_gpu) return absl::OkStatus();
  const int each = (ranks + devices - 1) / devices;
  return absl::InvalidArgumentError(absl::StrCat(
      ranks, " ranks were started on this machine, which has ", devices,
      " CUDA device(s): start fewer, let them share a GPU with "
      "run.ranks_per_gpu = ",
      each, ", or compute on the CPU with run.device = \"cpu\""));
}

absl::StatusOr<std::unique_ptr<Device>> Gpu(const DeviceChoice& choice,
                                            World& world) {
  DELINK_ASSIGN_OR_RETURN(const int devices, CountCudaDevices());
  DELINK_RETURN_IF_ERROR(
      CheckRanks(world.local_size(), devices, choice.ranks_per_gpu));
  return NewDeviceOf(DeviceKind::kCuda, world.local_rank() % devices);
}

absl::StatusOr<std::unique_ptr<Device>> Choose(const DeviceChoice& choice,
                                               World& world) {
  if (choice.device == Choice::kCpu) return NewCpuDevice();
  absl::StatusOr<std::unique_ptr<Device>> gpu = Gpu(choice, world);
  if (gpu.ok() || choice.device == Choice::kCuda) return gpu;
  // Warn if a usable GPU is not used.
  if (absl::IsFailedPrecondition(gpu.status())) {
    DELINK_LOG(kWarning) << std::string(gpu.status().message())
                         << "; computing on the CPU";
    return NewCpuDevice();
  }
  if (absl::IsUnavailable(gpu.status())) return NewCpuDevice();
  return gpu;
}

}  // namespace

std::optional<Choice> ParseDevice(std::string_view name) {
  for (const Choice choice : ValuesOf<Choice>(schema::Word)) {
    if (schema::Word(choice) == name) return choice;
  }
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<Device>> ChooseDevice(const DeviceChoice& choice,
                                                     World& world) {
  absl::StatusOr<std::unique_ptr<Device>> device = Choose(choice, world);
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(world.comm(), device.status()));
  const int64_t mine = IsCuda((*device)->kind()) ? 1 : 0;
  DELINK_ASSIGN_OR_RETURN(const int64_t with,
                          AllReduceScalar(world.comm(), mine, ReduceOp::kSum));
  if (with == 0 || with == world.size()) return device;
  return absl::InvalidArgumentError(absl::StrCat(
      with, " of ", world.size(),
      " ranks found a CUDA device, but all ranks of a run need the same kind "
      "of device: start them on equal machines, or set run.device = \"cpu\""));
}

absl::StatusOr<std::unique_ptr<Device>> NewDeviceOf(DeviceKind kind,
                                                    int ordinal) {
  if (kind == DeviceKind::kCpu) return NewCpuDevice();
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<Device> device,
                          NewCudaDevice(ordinal));
  DELINK_RETURN_IF_ERROR(CheckKernels(kind));
  return device;
}

absl::StatusOr<std::unique_ptr<SlowBus>> SlowBusAsAsked(const Device& device,
                                                        const World& world) {
  constexpr char kName[] = "DELINK_BUS";
  const std::optional<std::string> text = ProcessEnvironment(kName);
  if (!text.has_value()) return nullptr;
  const absl::StatusOr<Link> way = ParseLink(*text);
  if (!way.ok()) {
    return absl::Status(
        way.status().code(),
        absl::StrCat(kName, ": ", std::string(way.status().message())));
  }
  if (device.kind() != DeviceKind::kCpu) {
    return absl::FailedPreconditionError(
        absl::StrCat(kName, ": the device is ", device.name(),
                     ", which has a real bus; unset DELINK_BUS, or set "
                     "run.device = \"cpu\""));
  }
  if (world.rank() == 0) {
    DELINK_LOG(kWarning) << kName << "=" << *text
                         << ": copies between device and host are delayed";
  }
  return std::make_unique<SlowBus>(*way);
}

int RanksOnDevice(const Device& device, const World& world) {
  const absl::StatusOr<int> devices = CountCudaDevices();
  if (!IsCuda(device.kind()) || !devices.ok()) return 1;
  const int first = world.local_rank() % *devices;
  return (world.local_size() - first + *devices - 1) / *devices;
}

DeviceKind KindOfChoice(Choice device) {
  const bool cuda = device == Choice::kCuda ||
                    (device == Choice::kAuto && CountCudaDevices().ok());
  return cuda ? DeviceKind::kCuda : DeviceKind::kCpu;
}

}  // namespace delink
