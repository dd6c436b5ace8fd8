#include "recipes/plan/pseudo_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/format_bytes.h"
#include "recipes/record/stage_text.h"

namespace delink {
namespace {

// Less than this part of a real step is no gain worth a pseudo stage.
constexpr double kLeastGain = 0.05;
constexpr double kLeastPart = 0.005;  // of a real step, to be listed
// An embedding and a head are layers of a pipeline too.
constexpr int64_t kEnds = 2;

PseudoPlan PseudoOf(const StagePlan& stage, std::string name) {
  return {.name = std::move(name),
          .depth = stage.depth,
          .seconds = stage.simulated->seconds,
          .parts = stage.simulated->path.parts,
          .account = stage.account};
}

// Stage `index` with one more key, "depth=1".
void AddVariant(const PlanOptions& options, const ModelList& models,
                size_t index, const std::string& key, RunPlan& plan) {
  PlanOptions changed = options;
  changed.trace_out.clear();
  changed.sets.push_back(absl::StrCat("stage.", index, ".", key));
  const absl::StatusOr<RunPlan> other = PlanRun(changed, models);
  if (!other.ok()) return;
  const StagePlan& stage = other->stages[index];
  plan.pseudo.push_back(
      PseudoOf(stage, absl::StrCat("stage ", stage.name, " with ", key)));
}

// What it takes more than the real step, in words; the largest first.
TimeParts MoreThan(const StagePlan& real, const PseudoPlan& pseudo) {
  std::map<std::string, double> more;
  for (const auto& [word, seconds] : pseudo.parts) more[word] += seconds;
  for (const auto& [word, seconds] : real.simulated->path.parts) {
    more[word] -= seconds;
  }
  TimeParts parts(more.begin(), more.end());
  std::ranges::stable_sort(parts, std::greater(), [](const auto& part) {
    return std::abs(part.second);
  });
  return parts;
}

std::string TimeText(const StagePlan& real, const PseudoPlan& pseudo) {
  const double whole = real.simulated->seconds;
  std::vector<std::string> parts;
  for (const auto& [word, seconds] : MoreThan(real, pseudo)) {
    if (std::abs(seconds) < kLeastPart * whole) continue;
    parts.push_back(absl::StrFormat("%+.3g s %s", seconds, word));
  }
  return absl::StrFormat("  a step takes %.4g s, %.2f of one of stage %s%s%s\n",
                         pseudo.seconds, pseudo.seconds / whole, real.name,
                         parts.empty() ? "" : ": ", absl::StrJoin(parts, ", "));
}

std::string BytesText(const StagePlan& real, const PseudoPlan& pseudo) {
  const MemoryAccount& some = pseudo.account;
  const MemoryAccount& all = real.account;
  const std::vector<std::pair<const char*, std::pair<int64_t, int64_t>>> rows =
      {{"weights", {some.weights, all.weights}},
       {"gradients", {some.gradients, all.gradients}},
       {"state", {some.state, all.state}},
       {"host memory", {some.host, all.host}}};
  std::string text =
      absl::StrCat("  a rank's device takes ", FormatBytes(some.total()),
                   " of ", FormatBytes(all.total()));
  for (const auto& [word, bytes] : rows) {
    if (bytes.first == bytes.second) continue;
    absl::StrAppend(&text, ", ", word, " ", FormatBytes(bytes.first), " of ",
                    FormatBytes(bytes.second));
  }
  return text + "\n";
}

}  // namespace

void FindPseudo(const PlanOptions& options, const ModelList& models,
                RunPlan& plan) {
  for (size_t i = 0; i + 1 < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    plan.pseudo.push_back(PseudoOf(stage, "stage " + stage.name));
  }
  const StagePlan& first = plan.stages.front();
  if (plan.pseudo.empty()) {
    if (first.unique_parameters < first.virtual_parameters) return;
    AddVariant(options, models, 0, "share=all", plan);
    return;
  }
  const int64_t least = std::max<int64_t>(1, first.mesh.pipeline - kEnds);
  if (least >= first.depth) return;
  AddVariant(options, models, 0, absl::StrCat("depth=", least), plan);
}

std::string PseudoText(const RunPlan& plan) {
  if (plan.pseudo.empty()) return "";
  const StagePlan& real = plan.stages.back();
  const double whole = real.simulated->seconds;
  std::string text;
  for (const PseudoPlan& pseudo : plan.pseudo) {
    absl::StrAppend(&text, "cost of sharing: ", pseudo.name, ", ", pseudo.depth,
                    " of ", real.blocks, " blocks\n", TimeText(real, pseudo),
                    BytesText(real, pseudo));
    if (pseudo.seconds < (1 - kLeastGain) * whole) continue;
    if (pseudo.depth < real.depth) {
      text += "  it saves no time: what its blocks do not take is the most\n";
      continue;
    }
    const double more = 100 * (whole / pseudo.seconds - 1);
    absl::StrAppendFormat(
        &text,
        "  it saves no time: a real step takes %.1f%% %s than a pseudo one "
        "with all blocks; only fewer blocks (stage.depth) would\n",
        std::abs(more), more < 0 ? "less" : "more");
  }
  return text;
}

nlohmann::ordered_json PseudoJson(const RunPlan& plan) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const PseudoPlan& pseudo : plan.pseudo) {
    const StagePlan& real = plan.stages.back();
    nlohmann::ordered_json more;
    for (const auto& [word, seconds] : MoreThan(real, pseudo)) {
      more[word] = seconds;
    }
    all.push_back({{"name", pseudo.name},
                   {"depth", pseudo.depth},
                   {"beside", real.name},
                   {"seconds_per_step", pseudo.seconds},
                   {"of_real_step", pseudo.seconds / real.simulated->seconds},
                   {"more_seconds", more},
                   {"bytes", ToJson(pseudo.account)}});
  }
  return all;
}

}  // namespace delink
