#include "recipes/run/dry_run/known_rates.h"

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/status_macros.h"
#include "offload/rates/machine_rates.h"
#include "recipes/record/rated_device.h"
#include "recipes/schema/machine_file.h"

namespace delink {
namespace {

// Assumed for a current GPU behind PCIe, and for a few CPU cores.
offload::StepRates Assumed(bool cuda, DType dtype) {
  if (!cuda) {
    return {.flops = 1e11,
            .to_device = 8e9,
            .to_host = 8e9,
            .host_memory = 16e9,
            .device_memory = 16e9};
  }
  return {.flops = dtype == DType::kBF16 ? 3e14 : 5e13,
          .to_device = 2e10,
          .to_host = 2e10,
          .host_memory = 1e11,
          .device_memory = 2e12};
}

// The forms of what updates read and write; nullopt unless they are AdamW's.
std::optional<offload::ParamForms> FormsOf(const Recipe& recipe) {
  if (recipe.optimizer.kind != OptimizerConfig::Kind::kAdamW) {
    return std::nullopt;
  }
  return offload::ParamForms{
      .weights = recipe.run.precision,
      .gradients = recipe.run.gradients,
      .master = recipe.run.master,
      .moments = recipe.optimizer.moments.value_or(StateStorage::kExact)};
}

absl::StatusOr<offload::RatedDevice> DeviceOf(const Device& device) {
  if (device.kind() != DeviceKind::kMetaCuda) return RatedDeviceOf(device);
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<Device> here, NewCudaDevice(0));
  return RatedDeviceOf(*here);
}

}  // namespace

absl::StatusOr<KnownRates> RatesIn(const offload::MachineRates& machine,
                                   const std::string& path,
                                   const Recipe& recipe) {
  const DType dtype = recipe.run.precision;
  if (machine.FlopsOf(dtype) <= 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": has no rate of products in ", ToString(dtype),
        "; add a [[products]] table, or run delink bench --suite machine"));
  }
  const std::optional<offload::ParamForms> forms = FormsOf(recipe);
  return KnownRates{
      .rates = forms ? RatesOf(machine, *forms) : RatesOf(machine, dtype),
      .machine = std::make_shared<const offload::MachineRates>(machine),
      .source = "of " + path};
}

absl::StatusOr<KnownRates> MeasuredRates(const Device& device,
                                         const Recipe& recipe) {
  DELINK_ASSIGN_OR_RETURN(const offload::RatedDevice rated, DeviceOf(device));
  DELINK_ASSIGN_OR_RETURN(const std::string path,
                          offload::DefaultMachineRatesPath());
  DELINK_ASSIGN_OR_RETURN(const offload::MachineRates machine,
                          ReadMachine(path, rated));
  DELINK_ASSIGN_OR_RETURN(KnownRates known, RatesIn(machine, path, recipe));
  known.source = "measured, in " + path;
  return known;
}

KnownRates RatesFor(const Device& device, const Recipe& recipe) {
  absl::StatusOr<KnownRates> measured = MeasuredRates(device, recipe);
  if (measured.ok()) return *std::move(measured);
  const std::string reason = absl::IsNotFound(measured.status())
                                 ? "no rates of this machine are stored (run "
                                   "delink bench --suite machine)"
                                 : std::string(measured.status().message());
  const offload::StepRates rates =
      Assumed(IsCuda(device.kind()), recipe.run.precision);
  constexpr double kGiga = 1e9, kTera = 1e12;
  return {.rates = rates,
          .source = absl::StrFormat(
              "assumed, %.3g TFLOP/s, %.3g GB/s each way of the bus and %.3g "
              "GB/s of the host's memory, since %s",
              rates.flops / kTera, rates.to_device / kGiga,
              rates.host_memory / kGiga, reason)};
}

}  // namespace delink
