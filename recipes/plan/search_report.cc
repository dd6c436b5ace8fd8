#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/format_bytes.h"
#include "recipes/plan/machine_report.h"
#include "recipes/plan/search.h"
#include "recipes/schema/describe.h"

namespace delink {
namespace {

using Json = nlohmann::ordered_json;

std::string StageText(const StageSearch& s, const PlannedMachine& machine) {
  std::string text = absl::StrFormat(
      "stage %s: %d layouts of %d rank(s), %d of them not possible; %d "
      "candidates:\n  %d not possible, %d not needed, %d do not fit, %d cannot "
      "be faster than number %d, %d simulated",
      s.name, s.layouts, machine.ranks, s.refused_layouts, s.candidates,
      s.refused, s.not_needed, s.unfit, s.slower, s.best.size(), s.simulated);
  if (s.untried > 0) {
    absl::StrAppendFormat(&text, ", %d not tried", s.untried);
  }
  text += '\n';
  for (const auto& [key, of] : s.reasons) {
    const std::string& why = of.second;
    absl::StrAppendFormat(&text, "  not possible by %s: %d, as %s\n", key,
                          of.first, why.substr(0, why.find(';')));
  }
  for (size_t i = 0; i < s.best.size(); ++i) {
    const FoundForm& found = s.best[i];
    absl::StrAppendFormat(&text, "  %2d. %.4g s a step, %s of %s", i + 1,
                          found.step.seconds, FormatBytes(found.device),
                          FormatBytes(machine.rank_memory()));
    if (found.host > 0) {
      absl::StrAppend(&text, " and ", FormatBytes(found.host), " of a host");
    }
    if (found.switch_bytes > 0) {
      absl::StrAppend(&text, " (", FormatBytes(found.switch_bytes),
                      " at the switch)");
    }
    absl::StrAppend(&text, ": ", ToString(found.form), " (",
                    found.micro_batches, " micro-batches)\n      ",
                    PathText(found.step), "\n");
  }
  return text;
}

Json FormJson(const FoundForm& found) {
  const ParallelConfig& of = found.form.parallel;
  return {{"layout", ToString(found.form)},
          {"tensor", of.tensor},
          {"context", of.context},
          {"data", of.data},
          {"pipeline", of.pipeline},
          {"expert", of.expert},
          {"sequence", *of.sequence},
          {"schedule", schema::Word(*of.schedule)},
          {"chunks", of.chunks},
          {"dispatch", schema::Word(*of.dispatch)},
          {"micro_batch", found.form.micro_batch},
          {"micro_batches", found.micro_batches},
          {"recompute", schema::Word(found.form.recompute)},
          {"zero", of.zero},
          {"shard", of.shard},
          {"offload", found.form.offload.any()},
          {"seconds_per_step", found.step.seconds},
          {"device_bytes", found.device},
          {"host_bytes", found.host},
          {"switch_bytes", found.switch_bytes},
          {"limits", PathText(found.step)}};
}

Json StageJson(const StageSearch& s) {
  Json json{{"name", s.name},
            {"layouts", s.layouts},
            {"refused_layouts", s.refused_layouts},
            {"candidates", s.candidates},
            {"refused", s.refused},
            {"not_needed", s.not_needed},
            {"unfit", s.unfit},
            {"slower", s.slower},
            {"simulated", s.simulated},
            {"untried", s.untried},
            {"reasons", Json::object()},
            {"best", Json::array()}};
  for (const auto& [key, of] : s.reasons) {
    json["reasons"][key] = {{"count", of.first}, {"example", of.second}};
  }
  for (const FoundForm& found : s.best) json["best"].push_back(FormJson(found));
  return json;
}

}  // namespace

std::string ToText(const RunSearch& search) {
  std::string text = MachineText(search.machine, 0);
  text.resize(text.find('\n') + 1);
  absl::StrAppend(&text, "rates ", search.rates, "\n");
  for (const StageSearch& stage : search.stages) {
    text += StageText(stage, search.machine);
  }
  return text;
}

std::string ToJson(const RunSearch& search) {
  Json json{{"machine", search.machine.path},
            {"ranks", search.machine.ranks},
            {"stages", Json::array()}};
  for (const StageSearch& stage : search.stages) {
    json["stages"].push_back(StageJson(stage));
  }
  return json.dump(2) + "\n";
}

}  // namespace delink
