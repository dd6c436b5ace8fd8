#include "recipes/run/setup/inputs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/status_macros.h"
#include "recipes/run/setup/prepare.h"
#include "recipes/run/setup/prepare_folder.h"
#include "recipes/schema/recipe_io.h"

namespace delink {
namespace {

// Checks that this rank's text is rank 0's; reports the first line that
// differs.
absl::Status SameLines(const std::string& mine, const std::string& first) {
  const std::vector<std::string> here = absl::StrSplit(mine, '\n');
  const std::vector<std::string> there = absl::StrSplit(first, '\n');
  for (size_t i = 0; i < std::max(here.size(), there.size()); ++i) {
    const std::string a = i < here.size() ? here[i] : "";
    const std::string b = i < there.size() ? there[i] : "";
    if (a == b) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("this rank has '", a, "' where rank 0 has '", b,
                     "'; give all ranks the same recipe, options and corpus"));
  }
  return absl::OkStatus();
}

// Options that must be the same on all ranks: resuming, an early end, or a
// trace.
std::string LinesOf(const TrainOptions& options) {
  const auto flag = [](const char* name, bool given) {
    return absl::StrCat(given ? "" : "no ", name, "\n");
  };
  return absl::StrCat(
      "--out ", FolderOf(options), "\n", flag("--resume", options.resume),
      flag("--resume=CHECKPOINT", !options.resume_from.empty()),
      flag("--overwrite", options.overwrite),
      flag("--init", !options.init.empty()),
      options.until_step ? absl::StrCat("--until-step ", *options.until_step)
                         : "no --until-step",
      "\n", flag("--trace", !options.trace.empty()), "--trace-steps ",
      options.trace_steps.first, ":", options.trace_steps.last, "\n");
}

}  // namespace

absl::StatusOr<RunInputs> ReadInputs(const TrainOptions& options,
                                     const ModelList& models, int ranks) {
  DELINK_ASSIGN_OR_RETURN(
      const Recipe read,
      ReadRecipe(options.recipe, options.sets, KindsOf(models)));
  absl::StatusOr<Recipe> recipe = CheckWorld(read, ranks);
  // The checkpoint says in which stage a run continues.
  std::vector<absl::Status> unfit;
  if (options.resume) {
    while (!recipe.ok() && unfit.size() + 1 < read.stages.size()) {
      unfit.push_back(recipe.status());
      recipe = CheckWorld(read, ranks, /*planned=*/false, unfit.size());
    }
    if (!recipe.ok() && !unfit.empty()) return unfit.front();
  }
  DELINK_RETURN_IF_ERROR(recipe.status());
  DELINK_ASSIGN_OR_RETURN(Sources sources, Sources::Open(*recipe));
  DELINK_ASSIGN_OR_RETURN(Recipe fitted, FitVocab(*recipe, sources.corpus(0)));
  return RunInputs{.recipe = std::move(fitted),
                   .sources = std::move(sources),
                   .unfit = std::move(unfit)};
}

absl::Status AgreeOnInputs(Communicator& comm, const TrainOptions& options,
                           const RunInputs& inputs) {
  Recipe recipe = inputs.recipe;
  recipe.data.train = recipe.data.validation = "";
  for (DataSource& source : recipe.data.sources) {
    source.train = source.validation = "";
  }
  const std::string mine = absl::StrCat(LinesOf(options), ToToml(recipe),
                                        "corpus ", inputs.sources.digests());
  DELINK_ASSIGN_OR_RETURN(const std::string first,
                          BroadcastString(comm, mine, 0));
  return AgreeOnStatus(comm, SameLines(mine, first));
}

}  // namespace delink
