#include "recipes/run/setup/prepare.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/module/can_cut.h"
#include "framework/sharing/grow.h"
#include "offload/plan/place.h"
#include "recipes/run/stage/make_optimizer.h"
#include "recipes/schema/nearest.h"

namespace delink {
namespace {

// `first`: as RunModel::Create's.
absl::Status CheckStages(const RunEnv& env, size_t first) {
  SharingMap before;
  for (size_t i = 0; i < env.recipe->stages.size(); ++i) {
    DELINK_ASSIGN_OR_RETURN(SharingMap map, SharingOf(env, i));
    DELINK_RETURN_IF_ERROR(CheckGroups(env, i, map));
    if (i >= first) {
      DELINK_RETURN_IF_ERROR(CheckCut(*env.recipe, *env.registry, i));
      DELINK_RETURN_IF_ERROR(CheckExperts(*env.recipe, *env.registry, i));
      DELINK_RETURN_IF_ERROR(CheckOffload(*env.recipe, *env.registry, i));
    }
    if (i > 0) {
      const absl::Status status =
          GrowthOf(*env.registry, env.model->blocks(), before, map,
                   GrowthInto(*env.recipe, i))
              .status();
      if (!status.ok()) {
        const bool grows = env.recipe->Depth(i) > env.recipe->Depth(i - 1);
        const std::string key =
            absl::StrCat("stage[", i, "].", grows ? "grow" : "share");
        return ErrorAt(*env.recipe, key, key, std::string(status.message()));
      }
    }
    before = std::move(map);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCut(const Recipe& recipe, const ParamRegistry& registry,
                      size_t stage) {
  const int64_t tensor = recipe.stages[stage].parallel.tensor;
  const ParamDecl* const decl = CannotBeCut(registry, tensor);
  if (decl == nullptr) return absl::OkStatus();
  const ParamSpec& spec = decl->spec;
  const bool rows = spec.split == Split::kOut;
  const Entries entries = EntriesOf(spec);
  const int64_t most =
      (rows && !spec.vectors ? entries.rows : entries.columns) / spec.unit;
  const std::string others = Nearest(tensor, most, [&](int64_t ranks) {
    return CannotBeCut(registry, ranks) == nullptr;
  });
  const std::string key = absl::StrCat("stage[", stage, "].parallel.tensor");
  return ErrorAt(
      recipe, key, key,
      absl::StrCat(tensor, " ranks cannot share ", decl->name, " ",
                   spec.shape.ToString(), ", whose heads are ", spec.unit,
                   rows ? " rows" : " columns", "; use tensor ", others));
}

absl::Status CheckExperts(const Recipe& recipe, const ParamRegistry& registry,
                          size_t stage) {
  const int64_t expert = recipe.stages[stage].parallel.expert;
  if (expert == 1) return absl::OkStatus();
  const std::string key = absl::StrCat("stage[", stage, "].parallel.expert");
  bool any = false;
  for (const ParamDecl& decl : registry.decls) {
    if (decl.spec.split != Split::kExpert) continue;
    any = true;
    const int64_t experts = decl.spec.shape[0];
    if (experts % expert == 0) continue;
    const std::string others = Nearest(
        expert, experts, [&](int64_t ranks) { return experts % ranks == 0; });
    return ErrorAt(
        recipe, key, key,
        absl::StrCat(expert, " does not divide the ", experts, " experts of ",
                     decl.name, " ", decl.spec.shape.ToString(),
                     "; use expert ", others));
  }
  if (any) return absl::OkStatus();
  return ErrorAt(recipe, key, key,
                 absl::StrCat(expert,
                              ", but the model has no experts; leave "
                              "it out"));
}

// A row that matches no parameter is a typo.
absl::Status CheckOffload(const Recipe& recipe, const ParamRegistry& registry,
                          size_t stage) {
  const OffloadRules& offload = recipe.stages[stage].offload;
  const std::optional<size_t> row = RowWithoutMatch(registry, offload);
  if (!row.has_value()) return absl::OkStatus();
  const std::string key =
      absl::StrCat("stage[", stage, "].offload.rows[", *row, "].match");
  return ErrorAt(
      recipe, key, key,
      absl::StrCat("'", At(offload.rows, *row).match,
                   "' matches no parameter; an example of a name is ",
                   registry.decls.front().name));
}

absl::StatusOr<Recipe> FitVocab(const Recipe& recipe, const Corpus& corpus) {
  const int64_t wanted = recipe.model->vocab;
  if (wanted == 0) return recipe.WithVocab(corpus.vocab_size());
  if (wanted >= corpus.vocab_size()) return recipe;  // padded for speed
  return absl::InvalidArgumentError(
      absl::StrCat("model.vocab is ", wanted, ", but ", corpus.dir(), " has ",
                   corpus.vocab_size(),
                   " tokens; leave model.vocab out, or rebuild the corpus with "
                   "that vocabulary"));
}

bool HasLaneThread(const Recipe& recipe, int threads) {
  return threads > 1 ||
         std::ranges::any_of(recipe.stages, [](const Stage& stage) {
           return stage.parallel.pipeline > 1 || stage.parallel.zero == 3 ||
                  stage.offload.any();
         });
}

absl::StatusOr<std::unique_ptr<RunModel>> RunModel::Create(
    const Recipe& recipe, const ModelList& models, size_t first) {
  std::unique_ptr<RunModel> made(new RunModel);
  made->model_ = BuildModel(
      models, Scope(made->registry_, recipe.run.precision), *recipe.model);
  DELINK_ASSIGN_OR_RETURN(made->optimizer_,
                          MakeOptimizer(recipe, made->registry_));
  DELINK_ASSIGN_OR_RETURN(made->host_optimizer_,
                          MakeOptimizer(recipe, made->registry_));
  made->env_ = {.recipe = &recipe,
                .model = made->model_.get(),
                .registry = &made->registry_,
                .optimizer = made->optimizer_.get(),
                .host_optimizer = made->host_optimizer_.get()};
  DELINK_RETURN_IF_ERROR(CheckStages(made->env_, first));
  return made;
}

RunEnv RunModel::On(Device& device, Communicator& world,
                    Communicator& network) const {
  RunEnv env = env_;
  env.device = &device;
  env.world = &world;
  env.network = &network;
  return env;
}

}  // namespace delink
