#include "recipes/run/observers/diagnosis.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "recipes/record/run_folder.h"
#include "recipes/schema/recipe_io.h"

namespace delink {
namespace {

using Json = nlohmann::ordered_json;

std::vector<int32_t> Row(const std::vector<int32_t>& all, size_t index,
                         size_t length) {
  const auto begin = all.begin() + static_cast<int64_t>(index * length);
  return {begin, begin + static_cast<int64_t>(length)};
}

Json SequencesOf(const HostBatch& batch) {
  Json sequences = Json::array();
  const size_t length = batch.inputs.size() / batch.samples.size();
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    sequences.push_back({{"sample", batch.samples[i]},
                         {"tokens", Row(batch.inputs, i, length)},
                         {"targets", Row(batch.targets, i, length)}});
  }
  return sequences;
}

Json StepOf(StageRun& stage, const TriedStep& tried,
            const std::vector<double>& norms, const std::string& why) {
  Json gradients = Json::object();
  for (size_t s = 0; s < norms.size(); ++s) {
    gradients[stage.store().layout().slabs()[s].name] = norms[s];
  }
  return {{"step", tried.step},
          {"stage", stage.stage().name},
          {"why", why},
          {"lr", tried.lr},
          {"loss", tried.result.loss},
          {"grad_norm", tried.result.grad_norm},
          {"tokens", tried.result.tokens},
          {"grad_norms", gradients}};
}

// Every data rank writes its own part, which all ranks of its place have.
// `norms`: after the step.
absl::Status Keep(const RunSetup& run, StageRun& stage, const TriedStep& tried,
                  const std::vector<double>& norms, const std::string& why,
                  const std::string& folder) {
  DELINK_RETURN_IF_ERROR(MakeDirectories(folder));
  const Mesh& mesh = stage.store().layout().mesh();
  const int rank = run.world().rank();
  const MeshPlace place = mesh.PlaceOf(rank);
  for (const Axis axis : {Axis::kTensor, Axis::kContext, Axis::kPipeline}) {
    if (place[axis] > 0) return absl::OkStatus();
  }
  const std::string mine = absl::StrFormat("rank-%05d.json", rank);
  DELINK_RETURN_IF_ERROR(WriteFile(JoinPath(folder, mine),
                                   JsonText(SequencesOf(*tried.batch)) + "\n"));
  if (!run.first()) return absl::OkStatus();
  DELINK_RETURN_IF_ERROR(
      WriteFile(JoinPath(folder, "recipe.toml"), ToToml(run.recipe())));
  return WriteFile(JoinPath(folder, "step.json"),
                   JsonText(StepOf(stage, tried, norms, why), 2) + "\n");
}

std::string FolderOf(const RunSetup& run, int64_t step) {
  return JoinPath(RunFolder::Diagnosis(run.out()),
                  absl::StrFormat("step-%08d", step));
}

}  // namespace

absl::Status NotFinite(const RunSetup& run, StageRun& stage,
                       const TriedStep& tried) {
  const std::vector<double> norms = stage.executor().GradientNorms();
  DELINK_ASSIGN_OR_RETURN(const std::string where,
                          stage.executor().Diagnose(*tried.batch, tried.step));
  const std::string folder = FolderOf(run, tried.step);
  const absl::Status kept = Keep(run, stage, tried, norms, where, folder);
  return absl::DataLossError(absl::StrCat(
      "step ", tried.step, ": the loss or its gradient is not finite: ", where,
      "; nothing was updated. The batch and the norms of its gradients are ",
      kept.ok() ? absl::StrCat("in ", folder)
                : absl::StrCat("lost: ", kept.message()),
      ". Lower optimizer.lr, lengthen schedule.warmup, or resume from the last "
      "checkpoint with another setting: --resume --set optimizer.lr=..."));
}

std::optional<OutlierWatch::Outlier> OutlierWatch::Add(double norm) {
  std::optional<Outlier> outlier;
  if (limit_ > 0 && norms_.size() >= kFewest) {
    const auto [mean, deviation] = norms_.Of(norms_.size());
    if (norm > mean + limit_ * deviation) {
      outlier = {
          .mean = mean,
          .deviations = deviation > 0 ? (norm - mean) / deviation : HUGE_VAL};
    }
  }
  norms_.Add(norm);
  return outlier;
}

void MaybeKeepOutlier(const RunSetup& run, OutlierWatch& watch, StageRun& stage,
                      const TriedStep& tried) {
  const auto outlier = watch.Add(tried.result.grad_norm);
  if (!outlier) return;
  const std::string why = absl::StrFormat(
      "the gradient norm %.4g is %.1f standard deviations above the mean %.4g "
      "of the previous steps",
      tried.result.grad_norm, outlier->deviations, outlier->mean);
  const std::string folder = FolderOf(run, tried.step);
  const absl::Status kept =
      Keep(run, stage, tried, stage.executor().GradientNorms(), why, folder);
  if (!kept.ok()) {
    DELINK_LOG(kWarning) << std::string(kept.message());
  }
  if (run.first()) {
    DELINK_LOG(kWarning) << "step " << tried.step << ": " << why
                         << "; the batch is in " << folder;
  }
}

}  // namespace delink
