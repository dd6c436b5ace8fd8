#include "recipes/run/inputs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/status_macros.h"
#include "recipes/run/prepare.h"
#include "recipes/schema/recipe_io.h"

namespace delink {
namespace {

// Whether this rank's text is rank 0's; the first line that differs.
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

}  // namespace

absl::StatusOr<RunInputs> ReadInputs(const TrainOptions& options,
                                     const ModelList& models, int ranks) {
  DELINK_ASSIGN_OR_RETURN(
      const Recipe read,
      ReadRecipe(options.recipe, options.sets, KindsOf(models)));
  DELINK_ASSIGN_OR_RETURN(const Recipe recipe, CheckWorld(read, ranks));
  DELINK_ASSIGN_OR_RETURN(Sources sources, Sources::Open(recipe));
  DELINK_ASSIGN_OR_RETURN(Recipe fitted, FitVocab(recipe, sources.corpus(0)));
  return RunInputs{.recipe = std::move(fitted), .sources = std::move(sources)};
}

absl::Status AgreeOnInputs(Communicator& comm, const RunInputs& inputs) {
  Recipe recipe = inputs.recipe;
  recipe.data.train = recipe.data.validation = "";
  for (DataSource& source : recipe.data.sources) {
    source.train = source.validation = "";
  }
  const std::string mine =
      absl::StrCat(ToToml(recipe), "corpus ", inputs.sources.digests());
  DELINK_ASSIGN_OR_RETURN(const std::string first,
                          BroadcastString(comm, mine, 0));
  return AgreeOnStatus(comm, SameLines(mine, first));
}

}  // namespace delink
