// Measured rates as tables.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "offload/plan/bounds.h"
#include "tools/bench/machine.h"
#include "tools/bench/rates_suite.h"
#include "tools/bench/update_rates.h"

namespace delink::bench {
namespace {

using offload::MachineRates;
using offload::ParamForms;
using offload::UpdatePlace;
using offload::WordOf;

std::string BusLine(const char* name, const offload::BusRates& bus) {
  return absl::StrFormat("  %-10s %10.2f %10.2f %14.2f %10.2f\n", name,
                         bus.to_device / kGiga, bus.to_host / kGiga,
                         bus.both_to_device / kGiga, bus.both_to_host / kGiga);
}

std::string BusText(const MachineRates& rates) {
  std::string text =
      absl::StrFormat("%-12s %10s %10s %14s %10s\n", "copies, GB/s",
                      "to device", "to host", "both to device", "to host");
  absl::StrAppend(&text, BusLine("pinned", rates.pinned),
                  BusLine("pageable", rates.pageable));
  if (rates.device.kind == "cpu") {
    absl::StrAppend(&text,
                    "  the device is the CPU: copies by one thread each way "
                    "between its memory and\n  the host's, which is the same; "
                    "pinned is ordinary memory in huge pages\n");
  } else if (!rates.pinned_memory) {
    absl::StrAppend(&text,
                    "  the driver pinned no memory: both rates are of "
                    "pageable memory\n");
  }
  return text;
}

std::string FormsText(const ParamForms& forms) {
  return absl::StrFormat("%-8s %-9s %-6s %-7s", ToString(forms.weights),
                         ToString(forms.gradients), WordOf(forms.master),
                         WordOf(forms.moments));
}

std::string UpdatesText(const MachineRates& rates) {
  std::string text = absl::StrFormat(
      "AdamW, Gparameters/s\n  %-8s %-9s %-6s %-7s %8s %8s %18s\n", "weights",
      "gradients", "master", "moments", "host", "device", "bytes of memory");
  for (const ParamForms& forms : RatedForms()) {
    absl::StrAppend(
        &text, absl::StrFormat(
                   "  %s %8.3f %8.3f %18.1f\n", FormsText(forms),
                   rates.ParamsPerSecond(UpdatePlace::kHost, forms) / kGiga,
                   rates.ParamsPerSecond(UpdatePlace::kDevice, forms) / kGiga,
                   HostTraffic(BytesOf(forms))));
  }
  return text;
}

// The number of tokens a step, or a pass over the weights, from which transfers
// and updates are free.
std::string BoundsText(const MachineRates& rates) {
  std::string text = absl::StrFormat(
      "transfers and updates are free from this many tokens on, if products "
      "run at the\nrates above and everything is in host memory\n  %-33s %9s "
      "%9s %9s %11s %13s\n",
      "", "weights", "weights", "gradients", "host update", "device update");
  absl::StrAppend(&text, absl::StrFormat("  %-8s %-9s %-6s %-7s %9s %9s %9s "
                                         "%11s %13s\n",
                                         "weights", "gradients", "master",
                                         "moments", "forward", "backward",
                                         "out", "in forward", "in forward"));
  for (const ParamForms& forms : RatedForms()) {
    if (rates.FlopsOf(forms.weights) == 0) continue;
    const offload::FreeFrom free =
        TokensFrom(BytesOf(forms), {}, offload::RatesOf(rates, forms));
    absl::StrAppend(
        &text, absl::StrFormat("  %s %9.0f %9.0f %9.0f %11.0f %13.0f\n",
                               FormsText(forms), free.weights_in_forward,
                               free.weights_in_backward, free.gradients_out,
                               free.host_update_in_forward,
                               free.device_update_in_forward));
  }
  return text;
}

std::string NetworkText(const char* name, const offload::NetworkRates& rates) {
  if (rates.bytes_per_s == 0) return "";
  std::string text =
      absl::StrFormat("network %s: %.2f GB/s each way, %.3g us", name,
                      rates.bytes_per_s / kGiga, 1e6 * rates.latency);
  if (rates.links > 0) absl::StrAppend(&text, ", ", rates.links, " link(s)");
  return text + "\n";
}

}  // namespace

std::string ToText(const MachineRates& rates) {
  std::string text = absl::StrFormat(
      "rates of %s '%s', %d threads of the host; load %.1f before; medians%s\n",
      rates.device.kind, rates.device.name, rates.threads, rates.load,
      rates.quick ? ", rough" : "");
  if (rates.load > kBusyLoad * static_cast<double>(rates.threads)) {
    absl::StrAppend(&text,
                    "the machine was busy: rates are no more than a lower "
                    "bound\n");
  }
  absl::StrAppend(
      &text, BusText(rates),
      absl::StrFormat(
          "host memory, GB/s: %.1f read, %.1f written, %.1f rewritten, "
          "%.1f triad\n",
          rates.memory.read / kGiga, rates.memory.write / kGiga,
          rates.memory.rewrite / kGiga, rates.memory.triad / kGiga),
      "products by the smallest of their sizes, GFLOP/s:");
  const char* comma = " ";
  for (const offload::MatmulRate& rate : rates.matmul) {
    absl::StrAppend(&text, comma,
                    absl::StrFormat("%s of %d %.1f", ToString(rate.dtype),
                                    rate.smallest, rate.flops_per_s / kGiga));
    comma = ", ";
  }
  absl::StrAppend(&text, "\n", NetworkText("inside a node", rates.inside),
                  NetworkText("between nodes", rates.between),
                  UpdatesText(rates), BoundsText(rates));
  return text;
}

}  // namespace delink::bench
