#include "recipes/run/position/saved_run.h"

#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "recipes/schema/limits.h"

namespace delink {
namespace {

constexpr char kProbes[] = "stage/probes";
constexpr char kValidation[] = "validation";
constexpr char kSkipped[] = "skipped";

std::vector<KeptValue> KeptOf(SavedRun& run) {
  return {{"tokens", &run.tokens},
          {"samples", &run.samples},
          {"stage_index", &run.stage_index},
          {"stage_begin_step", &run.stage_begin_step},
          {"stage_begin_samples", &run.stage_begin_samples},
          {"stage", &run.stage},
          {"corpus", &run.corpus},
          {"validated_on", &run.validated_on, true},
          {"imported", &run.imported, true},
          {"stage/losses", &run.stage_losses, true},
          {kProbes, &run.stage_probes, true},
          {kValidation, &run.validation, true},
          {kSkipped, &run.skipped, true},
          {"seconds", &run.seconds},
          {"flops", &run.flops, true}};
}

std::string GroupOf(size_t source) {
  return absl::StrCat("sources/", source, "/");
}

std::vector<KeptValue> KeptOf(SourceCount& source, const std::string& group) {
  return {
      {group + "name", &source.name},       {group + "corpus", &source.corpus},
      {group + "samples", &source.samples}, {group + "tokens", &source.tokens},
      {group + "begin", &source.begin},     {group + "epochs", &source.epochs},
      {group + "share", &source.share}};
}

bool HasGroup(const NamedValues& values, const std::string& group) {
  const auto first = values.lower_bound(group);
  return first != values.end() && first->first.starts_with(group);
}

absl::Status CheckCounts(const std::string& path, const SavedRun& run) {
  constexpr int64_t kMost = int64_t{1} << 62;  // tokens that can be counted
  const std::tuple<const char*, int64_t, int64_t> bounds[] = {
      {"tokens", run.tokens, kMost},
      {"samples", run.samples, kMost},
      {"stage_index", run.stage_index, schema::kMaxSteps},
      {"stage_begin_step", run.stage_begin_step, run.step},
      {"stage_begin_samples", run.stage_begin_samples, run.samples}};
  for (const auto& [name, value, most] : bounds) {
    DELINK_RETURN_IF_ERROR(CheckCount(path, name, value, most));
  }
  return absl::OkStatus();
}

// Step numbers, or -1 for none, among the floating-point values.
bool IsStep(double value, const SavedRun& run) {
  return value >= -1 && value <= static_cast<double>(run.step) &&
         value == std::floor(value);
}

absl::Status CheckLists(const std::string& path, const SavedRun& run) {
  const auto no_sense = [&](const char* name) {
    return Impossible(path, absl::StrCat("/", name, " makes no sense"));
  };
  double last = -1;
  for (size_t i = 0; i + 2 < run.stage_probes.size(); i += 3) {
    const double step = run.stage_probes[i];
    if (!IsStep(step, run) || step <= last ||
        !std::isfinite(run.stage_probes[i + 1] + run.stage_probes[i + 2])) {
      return no_sense(kProbes);
    }
    last = step;
  }
  const std::tuple<const char*, const std::vector<double>*, size_t, size_t>
      steps[] = {{kValidation, &run.validation, 1, 3},
                 {kSkipped, &run.skipped, 0, 1}};
  for (const auto& [name, values, first, second] : steps) {
    if (values->size() <= second) continue;
    if (!IsStep((*values)[first], run) || !IsStep((*values)[second], run)) {
      return no_sense(name);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SavedRun> SavedRun::From(const std::string& path,
                                        const CheckpointHeader& header) {
  SavedRun run;
  run.step = header.step;
  NamedValues values = header.values;
  DELINK_RETURN_IF_ERROR(TakeValues(path, KeptOf(run), values));
  while (HasGroup(values, GroupOf(run.sources.size()))) {
    const std::string group = GroupOf(run.sources.size());
    DELINK_RETURN_IF_ERROR(
        TakeValues(path, KeptOf(run.sources.emplace_back(), group), values));
  }
  DELINK_RETURN_IF_ERROR(CheckCounts(path, run));
  DELINK_RETURN_IF_ERROR(CheckLists(path, run));
  return run;
}

absl::StatusOr<SavedRun> SavedRun::Read(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const CheckpointHeader header, ReadHeader(path));
  return From(path, header);
}

NamedValues SavedRun::Values() const {
  SavedRun run = *this;
  NamedValues values;
  PutValues(KeptOf(run), values);
  for (size_t i = 0; i < run.sources.size(); ++i) {
    PutValues(KeptOf(run.sources[i], GroupOf(i)), values);
  }
  return values;
}

std::vector<SourceCount> SavedRun::Counts() const {
  if (!sources.empty()) return sources;
  return {
      {.name = "data", .corpus = corpus, .samples = samples, .tokens = tokens}};
}

}  // namespace delink
