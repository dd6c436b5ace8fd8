#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"
#include "recipes/record/environment.h"
#include "recipes/record/sink.h"
#include "recipes/record/source_log.h"
#include "recipes/record/stage_text.h"

namespace delink {
namespace {

using Json = nlohmann::ordered_json;

// Whether a row was written before the checkpoint of `step`.
bool Belongs(const nlohmann::json& row, int64_t step) {
  if (!row.is_object() || !row.contains("step") || !row["step"].is_number()) {
    return false;
  }
  const auto of = row["step"].get<int64_t>();
  return of < step || (of == step && row.value("event", "") != "delink");
}

// The lines of the file that stay.
absl::StatusOr<std::string> RowsUntil(const std::string& path, int64_t step) {
  std::string kept;
  if (!PathExists(path)) return kept;
  DELINK_ASSIGN_OR_RETURN(const std::string old, ReadFile(path));
  size_t begin = 0;
  while (begin < old.size()) {
    const size_t end = old.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string line = old.substr(begin, end - begin);
    const auto row = ParseJson(line);
    if (Belongs(row, step)) kept += line + "\n";
    begin = end + 1;
  }
  return kept;
}

Json RowOf(const RunBegan& run) {
  return {{"event", "start"},
          {"step", run.at.step},
          {"tokens", run.at.tokens},
          {"flops", run.at.flops},
          {"stage", run.at.stage},
          {"time", UtcNow()},
          {"command", CommandWords()},
          {"version", DelinkVersion()},
          {"commit", DelinkCommit()},
          {"features", DelinkFeatures()},
          {"device", run.device},
          {"processor", ProcessorName()},
          {"cores", std::thread::hardware_concurrency()},
          {"ranks", run.ranks},
          {"threads", run.threads},
          {"peak_flops", run.peak_flops},
          {"depth", run.stage.depth},
          {"flops_per_token", run.stage.flops_per_token},
          {"unique_parameters", run.stage.unique_parameters},
          {"virtual_parameters", run.stage.virtual_parameters},
          {"active_parameters", run.stage.active_parameters},
          {"bytes", ToJson(run.stage.account)},
          {"sources", SourcesJson(run.sources)},
          {"seconds", run.at.seconds}};
}

Json RowOf(const StepDone& step) {
  Json row = {{"step", step.at.step},
              {"tokens", step.at.tokens},
              {"flops", step.at.flops},
              {"stage", step.at.stage},
              {"loss", step.loss},
              {"lr", step.lr},
              {"grad_norm", step.grad_norm},
              {"seconds", step.at.seconds},
              {"tokens_per_s", step.speed.tokens_per_s},
              {"peak_memory", step.peak_memory}};
  if (step.wait.has_value()) {
    row["bubble"] = step.wait->bubble;
    row["network_wait"] = step.wait->seconds;
  }
  if (step.skipped) row["skipped"] = true;
  if (step.speed.new_peak_flops.has_value()) {
    row["peak_flops"] = *step.speed.new_peak_flops;
  }
  if (step.norms.has_value()) {
    row["norms"] = {{"layers", step.norms->layers},
                    {"gradient", step.norms->gradient},
                    {"weight", step.norms->weight}};
  }
  if (step.routing.has_value()) {
    row["routing"] = {{"layers", step.routing->layers},
                      {"load", step.routing->load},
                      {"max_violation", step.routing->max_violation},
                      {"dropped", step.routing->dropped},
                      {"entropy", step.routing->entropy},
                      {"z", step.routing->z},
                      {"aux_loss", step.routing->aux_loss}};
    if (!step.routing->choices.empty()) {
      row["routing"]["choices"] = step.routing->choices;
    }
  }
  if (step.sources.size() > 1) row["sources"] = ConsumedJson(step.sources);
  return row;
}

Json RowOf(const StepsTimed& timed) {
  Json lanes = Json::object();
  for (const StepsTimed::LaneTime& of : timed.lanes) {
    lanes[of.lane] = {{"planned", of.planned}, {"measured", of.measured}};
  }
  return {{"event", "timed"},
          {"step", timed.at.step},
          {"tokens", timed.at.tokens},
          {"flops", timed.at.flops},
          {"stage", timed.at.stage},
          {"planned_step_seconds", timed.planned},
          {"step_seconds", timed.measured},
          {"lanes", lanes},
          {"seconds", timed.at.seconds}};
}

Json RowOf(const GradientsProbed& probe) {
  Json rho_of;
  for (const auto& [part, rho] : probe.rho_of) rho_of[part] = rho;
  return {{"event", "agreement"},       {"step", probe.at.step},
          {"tokens", probe.at.tokens},  {"flops", probe.at.flops},
          {"stage", probe.at.stage},    {"agreement", probe.times_unrelated},
          {"rho", probe.rho},           {"rho_of", rho_of},
          {"seconds", probe.at.seconds}};
}

Json RowOf(const StageSwitched& change) {
  const StageFacts& before = change.before;
  const StageFacts& after = change.after;
  return {{"event", "delink"},
          {"step", change.at.step},
          {"from", before.name},
          {"to", after.name},
          {"why", change.why},
          {"loss_before", before.loss},
          {"loss_after", after.loss},
          {"depth_before", before.depth},
          {"depth", after.depth},
          {"unique_parameters", after.unique_parameters},
          {"virtual_parameters", after.virtual_parameters},
          {"unique_parameters_before", before.unique_parameters},
          {"virtual_parameters_before", before.virtual_parameters},
          {"flops_per_token_before", before.flops_per_token},
          {"flops_per_token", after.flops_per_token},
          {"bytes_before", ToJson(before.account)},
          {"bytes_after", ToJson(after.account)},
          {"seconds", change.at.seconds}};
}

Json RowOf(const RunValidated& validation) {
  Json row = {
      {"step", validation.at.step},         {"tokens", validation.at.tokens},
      {"flops", validation.at.flops},       {"stage", validation.at.stage},
      {"validation_loss", validation.loss}, {"seconds", validation.at.seconds}};
  for (const auto& [name, loss] : validation.loss_of) {
    row["validation_loss_of"][name] = loss;
  }
  return row;
}

Json RowOf(const RunEndsEarly& end) {
  return {{"event", "early_end"},
          {"step", end.at.step},
          {"tokens", end.at.tokens},
          {"flops", end.at.flops},
          {"why", end.why},
          {"best_validation_loss", end.best_loss},
          {"best_step", end.best_step},
          {"seconds", end.at.seconds}};
}

// The others have no row.
template <typename Other>
Json RowOf(const Other&) {
  return nullptr;
}

class MetricsSink final : public Sink {
 public:
  MetricsSink(std::string path, std::FILE* file)
      : path_(std::move(path)), file_(file) {}
  ~MetricsSink() override { std::fclose(file_); }
  MetricsSink(const MetricsSink&) = delete;
  MetricsSink& operator=(const MetricsSink&) = delete;

  absl::Status Record(const RunEvent& event) override {
    const Json row =
        std::visit([](const auto& of) { return RowOf(of); }, event);
    return row.is_null() ? absl::OkStatus() : Write(row);
  }

 private:
  absl::Status Write(const Json& row) {
    const std::string line = JsonText(row) + "\n";
    if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() ||
        std::fflush(file_) != 0) {
      return FileError(errno, path_, "write");
    }
    return absl::OkStatus();
  }

  std::string path_;
  std::FILE* file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Sink>> OpenMetricsSink(const std::string& path,
                                                      int64_t step) {
  DELINK_ASSIGN_OR_RETURN(const std::string kept, RowsUntil(path, step));
  DELINK_RETURN_IF_ERROR(WriteFileAtomically(path, kept));
  std::FILE* const file = std::fopen(path.c_str(), "ae");
  if (file == nullptr) return FileError(errno, path, "open");
  return std::make_unique<MetricsSink>(path, file);
}

}  // namespace delink
