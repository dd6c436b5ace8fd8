#include "recipes/run/dry_run/planned_machine.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "framework/base/format_bytes.h"
#include "recipes/schema/describe.h"

namespace delink {
namespace {

using offload::MachineRates;

// Ranks of a node that share a device.
int64_t Sharing(const PlannedMachine& planned) {
  return planned.machine.device.kind == "cpu" ? planned.ranks_per_node : 1;
}

}  // namespace

std::string DevicesText(const MachineRates& machine) {
  return absl::StrFormat("%d node(s) of %d device(s), %s '%s' of %s",
                         machine.nodes, machine.devices, machine.device.kind,
                         machine.device.name, FormatBytes(machine.tier.memory));
}

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

}  // namespace delink
