#include "recipes/plan/machine_report.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/format_bytes.h"
#include "recipes/record/progress.h"

namespace delink {
namespace {

using offload::MachineRates;

constexpr double kLeastShown = 0.05;  // percent

}  // namespace

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

std::string PathText(const MachineStep& step) {
  std::vector<std::string> parts;
  for (const auto& [word, seconds] : step.path.parts) {
    const double percent = 100 * seconds / step.seconds;
    if (percent >= kLeastShown) {
      parts.push_back(absl::StrFormat("%.1f%% %s", percent, word));
    }
  }
  return absl::StrJoin(parts, ", ");
}

std::string StepText(const PlannedMachine& machine, const MachineStep& step) {
  std::string text = absl::StrFormat(
      "  simulated: %.4g s a step, %.4g tokens/s, utilisation %.1f%% (FLOPs of "
      "the model without recomputation / (seconds x %d ranks x FLOP/s of large "
      "products))\n",
      step.seconds, step.tokens_per_second, 100 * step.utilization,
      machine.ranks);
  absl::StrAppend(&text, "  critical path, of rank ", step.path.rank, ": ",
                  PathText(step), "\n");
  for (const TierBytes& of : step.tiers) {
    absl::StrAppendFormat(
        &text,
        "  heaviest rank %d: %s of its device, %s of host "
        "memory, %s of disk a checkpoint\n",
        of.rank, FormatBytes(of.device), FormatBytes(of.host),
        FormatBytes(step.save_bytes / machine.ranks_per_node));
  }
  absl::StrAppendFormat(
      &text, "  %d steps take %s", step.steps,
      FormatSeconds(static_cast<double>(step.steps) * step.seconds));
  if (step.save_seconds > 0) {
    absl::StrAppendFormat(&text, ", %d checkpoints %s each (%s a node)",
                          step.saves, FormatSeconds(step.save_seconds),
                          FormatBytes(step.save_bytes));
  }
  if (step.switch_bytes > 0) {
    absl::StrAppendFormat(&text, ", the switch into it %s (%s a rank)",
                          FormatSeconds(step.switch_seconds),
                          FormatBytes(step.switch_bytes));
  }
  return text + "\n";
}

void AddStep(const PlannedMachine& machine, const MachineStep& step,
             nlohmann::ordered_json& json) {
  json["seconds_per_step"] = step.seconds;
  json["tokens_per_second"] = step.tokens_per_second;
  json["utilization"] = step.utilization;
  json["critical_path"] = nlohmann::ordered_json::object();
  for (const auto& [word, seconds] : step.path.parts) {
    json["critical_path"][word] = seconds;
  }
  json["critical_rank"] = step.path.rank;
  for (const TierBytes& of : step.tiers) {
    json["heaviest_ranks"].push_back(
        {{"rank", of.rank}, {"device", of.device}, {"host", of.host}});
  }
  json["saves"] = {{"count", step.saves},
                   {"bytes_of_node", step.save_bytes},
                   {"seconds_each", step.save_seconds}};
  json["switch"] = {{"bytes_of_rank", step.switch_bytes},
                    {"seconds", step.switch_seconds}};
  json["days"] = UseOf(machine, step.run_seconds()).days;
}

}  // namespace delink
