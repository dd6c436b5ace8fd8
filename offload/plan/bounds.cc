#include "offload/plan/bounds.h"

#include <algorithm>

#include "framework/base/check.h"

namespace delink::offload {
namespace {

// Seconds of a parameter whose bytes cross the bus both ways at once.
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
          .host_memory = rates.memory.rewrite};
}

StreamedBytes StreamedBy(const ParamBytes& bytes, const HostHomes& homes) {
  StreamedBytes streamed;
  if (homes.state) {
    streamed.in += bytes.state();
    streamed.out += bytes.state();
  }
  if (homes.weights) {
    streamed.in += bytes.weight_read;
    streamed.out += bytes.weight;
  }
  if (homes.gradients) streamed.in += bytes.gradient;
  return streamed;
}

double HostTraffic(const ParamBytes& bytes) {
  return 2 * bytes.gradient + 2 * bytes.state() + bytes.weight_read +
         2 * bytes.weight;
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
  return {.weights_in_forward = forward * weight,
          .weights_in_backward = backward * weight,
          .gradients_out = backward * bytes.gradient / rates.to_host,
          .host_update_in_backward = backward * update,
          .host_update_in_forward = forward * update,
          .device_update_in_forward =
              forward * CrossingSeconds(StreamedBy(bytes, homes),
                                        rates.to_device, rates.to_host)};
}

double WidthToHideBoundaries(const StepRates& rates) {
  constexpr double kParameters = 12;  // of a layer, over width^2
  constexpr double kBytes = 2;        // of a token's element
  constexpr double kFlops = 2;        // of a parameter and token
  return kBytes * rates.flops / (kFlops * kParameters * rates.to_host);
}

bool StreamingIsFaster(const ParamBytes& bytes, const HostHomes& homes,
                       const StepRates& rates) {
  return CrossingSeconds(StreamedBy(bytes, homes), rates.to_device,
                         rates.to_host) <
         HostTraffic(bytes) / rates.host_memory;
}

SlabSeconds SecondsOf(int64_t parameters, const ParamForms& forms,
                      const HostHomes& homes, const MachineRates& rates) {
  DELINK_CHECK_GE(parameters, 0);
  const auto n = static_cast<double>(parameters);
  const ParamBytes bytes = BytesOf(forms);
  const double to_device = rates.pinned.both_to_device,
               to_host = rates.pinned.both_to_host;
  const double on_host = rates.ParamsPerSecond(UpdatePlace::kHost, forms),
               on_device = rates.ParamsPerSecond(UpdatePlace::kDevice, forms);
  return {.fetch_weights = n * bytes.weight / to_device,
          .evict_gradient = n * bytes.gradient / to_host,
          .host_update = on_host > 0
                             ? n / on_host
                             : n * HostTraffic(bytes) / rates.memory.rewrite,
          .device_update = std::max(
              n * CrossingSeconds(StreamedBy(bytes, homes), to_device, to_host),
              on_device > 0 ? n / on_device : 0)};
}

}  // namespace delink::offload
