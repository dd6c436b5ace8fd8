#include "recipes/plan/search.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/format_bytes.h"
#include "framework/base/status_macros.h"
#include "recipes/plan/plan_inputs.h"
#include "recipes/plan/stage_searcher.h"
#include "recipes/run/dry_run/find_homes.h"
#include "recipes/run/dry_run/imagined_ranks.h"
#include "recipes/run/setup/choose_device.h"
#include "recipes/run/setup/prepare.h"
#include "recipes/run/stage/nodes.h"
#include "recipes/schema/machine_file.h"
#include "recipes/schema/recipe_io.h"

namespace delink {
namespace {

// No candidate of a stage fits, or none is possible.
absl::Status NothingFits(const StageSearch& search,
                         const PlannedMachine& machine) {
  if (!search.nearest.has_value()) {
    std::string reason;
    int64_t most = 0;
    for (const auto& [key, of] : search.reasons) {
      if (of.first <= most) continue;
      most = of.first;
      reason = of.second;
    }
    return absl::FailedPreconditionError(absl::StrFormat(
        "stage %s: none of %d layouts is possible on %d rank(s); most often: "
        "%s",
        search.name, search.layouts, machine.ranks, reason));
  }
  const NearestForm& nearest = *search.nearest;
  const int64_t room = machine.rank_memory();
  const std::string mend = absl::StrCat(
      search.untried > 0
          ? absl::StrCat(search.untried, " candidates were not tried; ")
          : "",
      "use more devices (--ranks), devices of more memory, a smaller batch or "
      "sequence, or optimizer state of fewer bytes (optimizer.moments, "
      "run.master)");
  if (nearest.bytes <= room) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "stage %s: nothing fits; the nearest, %s, exceeds the %s of a "
        "node's host; %s",
        search.name, ToString(nearest.form),
        FormatBytes(machine.machine.host_bytes), mend));
  }
  const auto [less, more] = FormatBytesApart(room, nearest.bytes);
  return absl::FailedPreconditionError(absl::StrFormat(
      "stage %s: nothing fits; the nearest, %s, takes %s%s of %s, %s too "
      "much; %s",
      search.name, ToString(nearest.form), nearest.at_least ? "at least " : "",
      more, less, FormatBytes(nearest.bytes - room), mend));
}

absl::Status HasStage(const Recipe& recipe, const std::string& name) {
  std::string names;
  for (const Stage& stage : recipe.stages) {
    if (name.empty() || stage.name == name) return absl::OkStatus();
    absl::StrAppend(&names, names.empty() ? "" : ", ", stage.name);
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "--stage %s: the recipe has no such stage; it has %s", name, names));
}

// As the recipe has it, if it fits the ranks; without offload.
std::optional<StageForm> OwnForm(Recipe recipe, size_t index, int ranks) {
  recipe.stages.resize(index + 1);
  const absl::StatusOr<Recipe> fitted = CheckWorld(recipe, ranks, true);
  if (!fitted.ok()) return std::nullopt;
  return StageForm{.parallel = fitted->stages[index].parallel,
                   .micro_batch = fitted->MicroBatch(index),
                   .recompute = fitted->RecomputeOf(index)};
}

// Stage by stage; env.recipe is `recipe`.
absl::Status SearchStages(const SearchOptions& options, const KnownRates& rates,
                          RunEnv& env, Recipe& recipe, RunSearch& search) {
  for (size_t i = 0; i < recipe.stages.size(); ++i) {
    const bool wanted =
        options.stage.empty() || recipe.stages[i].name == options.stage;
    if (wanted) {
      const Recipe open =
          WithForm(recipe, i, {.parallel = recipe.stages[i].parallel});
      env.recipe = &open;
      StageSearcher searcher(env, i, search.machine, rates, options);
      DELINK_ASSIGN_OR_RETURN(
          StageSearch stage,
          searcher.Run(OwnForm(recipe, i, env.world->size())));
      if (stage.best.empty()) return NothingFits(stage, search.machine);
      const FoundForm& best = stage.best.front();
      recipe.stages[i] = WithForm(recipe, i, best.form).stages[i];
      env.homes[i] = best.place;
      search.stages.push_back(std::move(stage));
      continue;
    }
    Recipe fitted = recipe;
    fitted.stages.resize(i + 1);
    DELINK_ASSIGN_OR_RETURN(fitted,
                            CheckWorld(fitted, env.world->size(), true));
    recipe.stages[i] = fitted.stages[i];
    recipe.stages[i].micro_batch = fitted.MicroBatch(i);
    if (!recipe.stages[i].offload.budgeted()) continue;
    env.recipe = &recipe;
    DELINK_ASSIGN_OR_RETURN(const FoundPlace found,
                            FindHomes(env, 0, i, rates));
    env.homes[i] = found.place;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunSearch> SearchRun(const SearchOptions& options,
                                    const ModelList& models) {
  if (options.plan.machine.empty()) {
    return absl::InvalidArgumentError(
        "--search needs --machine FILE: the machine whose devices, memory and "
        "rates decide");
  }
  DELINK_ASSIGN_OR_RETURN(const offload::MachineRates machine,
                          ReadMachine(options.plan.machine));
  std::vector<std::string> sets = options.plan.sets;
  sets.insert(sets.begin(), "run.device=" + machine.device.kind);
  DELINK_ASSIGN_OR_RETURN(const Recipe read, ReadRecipe(options.plan.recipe,
                                                        sets, KindsOf(models)));
  DELINK_RETURN_IF_ERROR(HasStage(read, options.stage));
  const int64_t ranks = options.plan.ranks > 0
                            ? options.plan.ranks
                            : machine.nodes * machine.RanksOfNode();
  DELINK_ASSIGN_OR_RETURN(
      const PlannedMachine planned,
      PlaceOnMachine(options.plan.machine, machine, read.run.device, ranks,
                     options.plan.ranks_per_node));
  DELINK_ASSIGN_OR_RETURN(Recipe recipe, WithVocab(read));
  DELINK_ASSIGN_OR_RETURN(const KnownRates rates,
                          RatesIn(machine, options.plan.machine, recipe));
  RunSearch search{.machine = planned, .rates = rates.source};
  const WithThreads threads(
      ThreadsOf(recipe.run, options.plan, planned, ranks));
  const std::unique_ptr<Device> device =
      NewMetaDevice(KindOfChoice(recipe.run.device));
  // Layouts are checked one by one.
  DELINK_ASSIGN_OR_RETURN(
      const std::unique_ptr<RunModel> model,
      RunModel::Create(recipe, models, recipe.stages.size()));
  ImaginedRanks world(static_cast<int>(ranks));
  RunEnv env = model->On(*device, world, world);
  env.nodes = NodesOf(ranks, planned.ranks_per_node);
  env.homes.resize(recipe.stages.size());
  DELINK_RETURN_IF_ERROR(SearchStages(options, rates, env, recipe, search));
  recipe.positions = nullptr;
  DELINK_ASSIGN_OR_RETURN(search.recipe, CheckWorld(recipe, ranks, true));
  return search;
}

}  // namespace delink
