#include "offload/plan/bounds.h"

#include <algorithm>

#include "framework/base/check.h"

namespace delink::offload {
namespace {

// Seconds per parameter if its bytes cross the bus in both directions at once.
double CrossingSeconds(const StreamedBytes& bytes, double to_device,
                       double to_host) {
  return std::max(bytes.in / to_device, bytes.out / to_host);
}

}  // namespace

StepRates RatesOf(const MachineRates& rates, DType compute) {
  const double flops = rates.FlopsOf(compute);
  DELINK_CHECK_GT(flops, 0)
      << "products in " << ToString(compute) << " were not measured";
  return {.flops = flops,
          .to_device = rates.pinned.both_to_device,
          .to_host = rates.pinned.both_to_host,
          .host_memory = rates.memory.rewrite,
          .device_memory = rates.tier.bytes_per_s};
}

StepRates RatesOf(const MachineRates& rates, const ParamForms& forms) {
  StepRates of = RatesOf(rates, forms.weights);
  of.adamw = forms.gradients == DType::kF32 &&
             forms.master == MasterForm::kWhole &&
             forms.moments == StateStorage::kExact;
  ParamForms near = forms;
  // The forms asked for are last, so their rate is used if it was measured.
  for (const DType gradients : {DType::kF32, DType::kBF16, forms.gradients}) {
    near.gradients = gradients;
    const ParamBytes bytes = BytesOf(near);
    const double host = rates.ParamsPerSecond(UpdatePlace::kHost, near),
                 device = rates.ParamsPerSecond(UpdatePlace::kDevice, near);
    if (host > 0) of.host_memory = host * HostTraffic(bytes);
    if (device > 0) of.device_memory = device * UpdateTraffic(bytes);
  }
  return of;
}

StreamedBytes StreamedBy(const ParamBytes& bytes, const HostHomes& homes) {
  StreamedBytes streamed;
  if (homes.state) {
    streamed.in += bytes.state();
    streamed.out += bytes.state();
  }
  if (homes.weights) {
    streamed.in += bytes.weight;
    streamed.out += bytes.weight;
  }
  if (homes.gradients) streamed.in += bytes.gradient;
  return streamed;
}

double UpdateTraffic(const ParamBytes& bytes) {
  return bytes.gradient + 2 * bytes.state() + bytes.weight_read + bytes.weight;
}

double HostTraffic(const ParamBytes& bytes) {
  return UpdateTraffic(bytes) + bytes.gradient + bytes.weight;
}

double HostBytes(const ParamBytes& bytes, const HostHomes& homes) {
  return (homes.weights ? bytes.weight : 0) +
         (homes.gradients ? bytes.gradient : 0) +
         (homes.state ? bytes.state() : 0);
}

FreeFrom TokensFrom(const ParamBytes& bytes, const HostHomes& homes,
                    const StepRates& rates, const TokenWork& work) {
  const double sparse = rates.flops * work.total_over_active;
  const double forward = sparse / work.forward,
               backward = sparse / work.backward;
  const double weight = bytes.weight / rates.to_device;
  const double update = HostTraffic(bytes) / rates.host_memory;
  StreamedBytes streamed = StreamedBy(bytes, homes);
  // The forward's own weights use the same direction of the bus.
  if (homes.weights) streamed.in += bytes.weight;
  return {
      .weights_in_forward = forward * weight,
      .weights_in_backward = backward * weight,
      .gradients_out = backward * bytes.gradient / rates.to_host,
      .host_update_in_backward = backward * update,
      .host_update_in_forward = forward * update,
      .device_update_in_forward =
          forward * CrossingSeconds(streamed, rates.to_device, rates.to_host)};
}

double WidthToHideBoundaries(const StepRates& rates) {
  constexpr double kParameters = 12;  // of a layer, over width^2
  constexpr double kBytes = 2;        // of a token's element
  constexpr double kFlops = 2;        // of a parameter and token
  return kBytes * rates.flops / (kFlops * kParameters * rates.to_host);
}

}  // namespace delink::offload
