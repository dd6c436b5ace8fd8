#include "recipes/schema/consistency.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "data/corpus/side.h"
#include "framework/sharing/switch_policy.h"
#include "recipes/schema/check_depth.h"
#include "recipes/schema/check_parallel.h"
#include "recipes/schema/describe.h"
#include "recipes/schema/problems.h"

namespace delink::schema {

std::string StageKey(size_t i, std::string_view key) {
  return absl::StrFormat("stage[%d].%s", i, key);
}

namespace {

void CompleteModel(Section& document, Recipe& recipe) {
  std::unique_ptr<ModelConfig> model = recipe.model->Clone();
  if (model->max_seq == 0) model->max_seq = recipe.data.seq;
  if (recipe.data.seq > model->max_seq) {
    document.Error("data.seq",
                   absl::StrFormat("%d is more than model.max_seq %d",
                                   recipe.data.seq, model->max_seq));
  }
  recipe.model = std::move(model);
}

void CheckSize(Section& document, const Recipe& recipe) {
  int64_t batch = recipe.data.batch;
  for (size_t i = 0; i < recipe.stages.size(); ++i) {
    batch = std::max(batch, recipe.Batch(i));
  }
  const double tokens = static_cast<double>(batch) *
                        static_cast<double>(recipe.data.seq) *
                        static_cast<double>(recipe.schedule.steps);
  if (tokens > 0x1p62) {
    document.Error("schedule.steps",
                   absl::StrFormat("steps x batch x seq are %.1e tokens, more "
                                   "than can be counted",
                                   tokens));
  }
}

// Whether it fits the model.
bool CheckShare(Section& document, const Recipe& recipe, size_t i) {
  const ShareSpec& share = recipe.stages[i].share;
  const int64_t layers = recipe.model->layers;
  const std::vector<std::string> parts = recipe.model->parts();
  bool fits = true;
  const auto check = [&](const SharePolicy& policy) {
    if (const absl::Status status = CheckSharePolicy(policy, layers);
        !status.ok()) {
      document.Error(StageKey(i, "share"), std::string(status.message()));
      fits = false;
    }
  };
  if (share.every) check(*share.every);
  for (const auto& [part, policy] : share.parts) {
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) {
      document.Error(
          StageKey(i, "share"),
          absl::StrFormat("model kind \"%s\" has no part '%s'%s; it has %s",
                          recipe.model->kind(), part, Suggestion(part, parts),
                          absl::StrJoin(parts, ", ")));
      fits = false;
    }
    check(policy);
  }
  return fits;
}

// The parts and stages of optimizer.group exist.
void CheckGroups(Section& document, const Recipe& recipe) {
  std::vector<std::string> stages;
  for (const Stage& stage : recipe.stages) stages.push_back(stage.name);
  const std::vector<std::string> parts = recipe.model->parts();
  const auto check = [&](size_t i, std::string_view key,
                         const std::string& name,
                         const std::vector<std::string>& names) {
    if (name.empty() || std::ranges::find(names, name) != names.end()) return;
    document.Error(
        absl::StrFormat("optimizer.group[%d].%s", i, key),
        absl::StrFormat("there is no %s '%s'%s; there are %s", key, name,
                        Suggestion(name, names), absl::StrJoin(names, ", ")));
  };
  for (size_t i = 0; i < recipe.optimizer.groups.size(); ++i) {
    const OptimizerGroup& group = recipe.optimizer.groups[i];
    check(i, "part", group.part, parts);
    check(i, "stage", group.stage, stages);
  }
}

// Delinking only cuts links: a later stage cannot add any.
void CheckSwitch(Section& document, const Recipe& recipe, size_t i) {
  const ShareSpec& before = recipe.stages[i - 1].share;
  const ShareSpec& after = recipe.stages[i].share;
  for (const std::string& part : recipe.model->parts()) {
    if (Refines(after.For(part), before.For(part), recipe.model->layers)) {
      continue;
    }
    document.Error(
        StageKey(i, "share"),
        absl::StrFormat(
            "%s \"%s\" shares weights between layers that do not share them in "
            "stage[%d] \"%s\"; a later stage can only remove sharing",
            part, ToString(after.For(part)), i - 1,
            ToString(before.For(part))));
    return;
  }
}

// A measured end needs something to measure.
void CheckMeasured(Section& document, const Recipe& recipe, size_t i) {
  const Until& until = recipe.stages[i].until;
  if (!until.gradient) return;
  const int64_t every = recipe.ProbeEvery(i);
  const int64_t least = every * static_cast<int64_t>(SwitchPolicy::kMinProbes);
  if (until.window < least) {
    document.Error(
        StageKey(i, "until.window"),
        absl::StrFormat("%d steps hold fewer than %d probes, one every %d "
                        "steps (run.probe_every); use %d",
                        until.window, SwitchPolicy::kMinProbes, every, least));
  }
}

void CheckUntil(Section& document, const Recipe& recipe, size_t i) {
  const Until& until = recipe.stages[i].until;
  const std::string key = StageKey(i, "until");
  const int given = int{until.fraction.has_value()} +
                    int{until.tokens.has_value()} +
                    int{until.steps.has_value()};
  if (i + 1 == recipe.stages.size()) {
    if (given > 0 || until.measured()) {
      document.Error(key,
                     "the last stage ends with the run, at schedule.steps; "
                     "leave the key out");
    }
    return;
  }
  if (given > 1 || (given == 0 && !until.measured())) {
    document.Error(
        key,
        absl::StrFormat("%s: give one of fraction, tokens, steps (or plateau, "
                        "gradient); only the last stage has none",
                        given == 0 ? "not given" : "given more than once"));
    return;
  }
  CheckMeasured(document, recipe, i);
  if (given == 0) return;  // it may last until the end of the run
  const int64_t begin = recipe.PlannedBegin(i).step;
  const int64_t end = recipe.StageEnd(i, recipe.PlannedBegin(i));
  const auto stages = recipe.stages.begin();
  const bool certain =
      std::none_of(stages, stages + static_cast<std::ptrdiff_t>(i),
                   [](const Stage& stage) { return stage.until.measured(); });
  if (end >= recipe.schedule.steps) {
    document.Error(key, absl::StrFormat("the stage ends at step %d, but the "
                                        "run at step %d",
                                        end, recipe.schedule.steps));
  } else if (end <= begin && certain) {
    document.Error(key, absl::StrFormat("the stage ends at step %d, but begins "
                                        "at step %d",
                                        end, begin));
  }
}

// A corpus may be named by the folder of both its sides.
void FindSides(DataConfig& data) {
  const auto find = [](auto& of) {
    of.train = SideOf(of.train, "train");
    of.validation = SideOf(of.validation, "validation");
  };
  find(data);
  for (DataSource& source : data.sources) find(source);
}

void CheckSources(Section& document, const std::vector<DataSource>& sources) {
  for (size_t i = 0; i < sources.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const std::string key = absl::StrFormat("data.source[%d].", i);
      if (sources[j].name == sources[i].name) {
        document.Error(key + "name",
                       absl::StrFormat("data.source[%d] has the name '%s' "
                                       "already",
                                       j, sources[i].name));
      }
      if (sources[j].train == sources[i].train) {
        document.Error(
            key + "train",
            absl::StrFormat("is the corpus of source '%s' already; raise the "
                            "weight of that source instead",
                            sources[j].name));
      }
    }
  }
}

void CheckBlend(Section& document, const Recipe& recipe, size_t i) {
  std::vector<std::string> names;
  for (const DataSource& source : recipe.data.sources) {
    names.push_back(source.name);
  }
  const std::map<std::string, double>& blend = recipe.stages[i].blend;
  for (const auto& [name, weight] : blend) {
    if (names.empty()) {
      document.Error(StageKey(i, "blend"),
                     "there is one corpus, data.train; name several in "
                     "[[data.source]] tables");
      return;
    }
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      document.Error(
          StageKey(i, "blend"),
          absl::StrFormat("there is no source '%s'%s; there is %s", name,
                          Suggestion(name, names), absl::StrJoin(names, ", ")));
      return;
    }
  }
  const std::vector<double> weights = recipe.Weights(i);
  if (std::any_of(weights.begin(), weights.end(),
                  [](double weight) { return weight > 0; })) {
    return;
  }
  document.Error(blend.empty() ? "data.source[0].weight" : StageKey(i, "blend"),
                 absl::StrFormat("the weights of all sources are 0 in stage[%d]"
                                 "; one must be more",
                                 i));
}

void CheckState(Section& document, const Recipe& recipe, size_t i) {
  const double clip_value = recipe.optimizer.clip_value;
  if (recipe.stages[i].state != StatePolicy::kCalibrated || clip_value == 0) {
    return;
  }
  document.Error(StageKey(i, "state"),
                 absl::StrFormat("\"calibrated\" does not see what "
                                 "optimizer.clip_value %g cuts off; clip by "
                                 "norm alone (optimizer.clip), or use "
                                 "\"scale\" or \"reset\"",
                                 clip_value));
}

void CompleteStages(Section& document, Recipe& recipe) {
  if (recipe.stages.empty()) {
    recipe.stages.resize(1);
    recipe.stages[0].name = "real";
  }
  for (size_t i = 0; i < recipe.stages.size(); ++i) {
    Stage& stage = recipe.stages[i];
    if (stage.name.empty()) stage.name = absl::StrFormat("stage%d", i);
    // Normalizes "none", whichever way it was given.
    if (!stage.share.every && stage.share.parts.empty()) {
      stage.share.every = SharePolicy{};
    }
    if (CheckShare(document, recipe, i)) CheckDepth(document, recipe, i);
    CheckUntil(document, recipe, i);
    CheckBlend(document, recipe, i);
    for (size_t j = 0; j < i; ++j) {
      if (recipe.stages[j].name == stage.name) {
        document.Error(StageKey(i, "name"),
                       absl::StrFormat("stage[%d] has the name '%s' already", j,
                                       stage.name));
      }
    }
  }
  CheckGroups(document, recipe);
  if (!document.complete()) return;
  CompleteParallel(document, recipe);
  CheckGrowth(document, recipe, 0);
  for (size_t i = 1; i < recipe.stages.size(); ++i) {
    CheckSwitch(document, recipe, i);
    CheckState(document, recipe, i);
    CheckGrowth(document, recipe, i);
  }
}

void CheckMaster(Section& document, const Recipe& recipe) {
  if (recipe.run.master == MasterForm::kWhole) return;
  const std::string_view name = Word(recipe.run.master);
  if (recipe.run.precision != DType::kBF16) {
    document.Error("run.master",
                   absl::StrFormat("\"%s\" is for run.precision \"bf16\"; in "
                                   "fp32 the weights are their own master",
                                   name));
  }
}

void CheckGradients(Section& document, const Recipe& recipe) {
  if (recipe.run.gradients == DType::kF32 ||
      recipe.run.precision == DType::kBF16) {
    return;
  }
  document.Error("run.gradients",
                 "\"bf16\" is for run.precision \"bf16\"; in fp32 gradients "
                 "are fp32 as the weights are");
}

}  // namespace

void Complete(Section& document, Recipe& recipe) {
  FindSides(recipe.data);
  CheckSources(document, recipe.data.sources);
  if (recipe.data.sources.empty() && recipe.data.validation.empty()) {
    recipe.data.validation =
        (std::filesystem::path(recipe.data.train).parent_path() / "validation")
            .string();
  }
  CheckSize(document, recipe);
  CheckMaster(document, recipe);
  CheckGradients(document, recipe);
  if (!document.complete()) return;
  CompleteModel(document, recipe);
  CompleteStages(document, recipe);
}

}  // namespace delink::schema
