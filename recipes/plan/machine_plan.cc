#include "recipes/plan/machine_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/format_bytes.h"
#include "recipes/schema/describe.h"

namespace delink {
namespace {

using offload::MachineRates;

// "64 node(s) of 8 device(s), cuda 'NVIDIA H100 80GB HBM3' of 78.0 GiB"
std::string DevicesText(const MachineRates& machine) {
  return absl::StrFormat("%d node(s) of %d device(s), %s '%s' of %s",
                         machine.nodes, machine.devices, machine.device.kind,
                         machine.device.name, FormatBytes(machine.tier.memory));
}

// Ranks of a node that share a device.
int64_t Sharing(const PlannedMachine& planned) {
  return planned.machine.device.kind == "cpu" ? planned.ranks_per_node : 1;
}

}  // namespace

int64_t PlannedMachine::rank_memory() const {
  return machine.tier.memory / Sharing(*this);
}

double PlannedMachine::RankFlops(DType dtype) const {
  return machine.FlopsOf(dtype) / static_cast<double>(Sharing(*this));
}

absl::StatusOr<PlannedMachine> PlaceOnMachine(const std::string& path,
                                              const MachineRates& machine,
                                              RunConfig::Device device,
                                              int64_t ranks,
                                              int64_t ranks_per_node) {
  const std::string kind(schema::Word(device));
  if (kind != machine.device.kind) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: has devices of kind %s, but --device (run.device) is %s; leave it "
        "out, or name a machine of that kind",
        path, machine.device.kind, kind));
  }
  const int64_t room = machine.RanksOfNode();
  if (ranks_per_node > room) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--ranks-per-node %d: a node of %s has room for %d rank(s) (%s)",
        ranks_per_node, path, room, DevicesText(machine)));
  }
  const int64_t each = ranks_per_node > 0 ? ranks_per_node : room;
  if (ranks > machine.nodes * each) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: has room for %d rank(s), %d a node, but the plan is for %d (%s); "
        "use fewer ranks, or a file with more nodes",
        path, machine.nodes * each, each, ranks, DevicesText(machine)));
  }
  return PlannedMachine{.path = path,
                        .machine = machine,
                        .ranks = ranks,
                        .ranks_per_node = std::min(ranks, each)};
}

std::string MachineText(const PlannedMachine& planned, int64_t bytes) {
  const MachineRates& machine = planned.machine;
  std::string text = absl::StrFormat(
      "machine %s: %s; %d rank(s) take %d node(s)\n",
      machine.name.empty()
          ? planned.path
          : absl::StrFormat("%s (%s)", machine.name, planned.path),
      DevicesText(machine), planned.ranks,
      (planned.ranks + planned.ranks_per_node - 1) / planned.ranks_per_node);
  const int64_t room = planned.rank_memory();
  if (bytes <= room) {
    absl::StrAppend(&text, "  a rank fits: it takes at most ",
                    FormatBytes(bytes), " of ", FormatBytes(room), "\n");
  } else {
    const auto [less, more] = FormatBytesApart(room, bytes);
    absl::StrAppend(&text, "  a rank does not fit: it takes ", more, " of ",
                    less, ", ", FormatBytes(bytes - room), " too much\n");
  }
  if (!machine.runs()) {
    absl::StrAppendFormat(
        &text,
        "  for plans only: kernels need compute capability %.1f, and these "
        "devices have %.1f\n",
        offload::kLeastCapability, *machine.tier.capability);
  }
  return text;
}

nlohmann::ordered_json ToJson(const PlannedMachine& planned, int64_t bytes) {
  const MachineRates& machine = planned.machine;
  return {{"file", planned.path},
          {"name", machine.name},
          {"nodes", machine.nodes},
          {"devices_per_node", machine.devices},
          {"device", machine.device.name},
          {"device_bytes", machine.tier.memory},
          {"ranks_per_node", planned.ranks_per_node},
          {"fits", bytes <= planned.rank_memory()},
          {"kernels_run", machine.runs()}};
}

}  // namespace delink
