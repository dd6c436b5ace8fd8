#include "recipes/saved/upcycled_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "recipes/models/gpt_config.h"
#include "recipes/models/llama_config.h"
#include "recipes/models/moe_config.h"
#include "recipes/models/upcycling.h"
#include "recipes/schema/recipe_io.h"

namespace delink {
namespace {

// A moe keeps what it says of its experts.
absl::StatusOr<MoeConfig> WithExperts(const SavedModel& saved,
                                      const UpcycleOptions& options) {
  const ModelConfig& model = *saved.recipe().model;
  MoeConfig config;
  config.top_k = std::min<int64_t>(options.experts, 2);
  config.normalise = true;
  if (const auto* llama = dynamic_cast<const LlamaConfig*>(&model)) {
    config.llama = *llama;
  } else if (const auto* gpt = dynamic_cast<const GptConfig*>(&model)) {
    config.block = MoeConfig::Block::kGpt;
    config.gpt = *gpt;
  } else if (const auto* moe = dynamic_cast<const MoeConfig*>(&model)) {
    config = *moe;
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        saved.path(), ": its model is of the kind ", std::string(model.kind()),
        ", but only the MLPs of gpt and llama can become experts"));
  }
  config.layers = model.layers;
  config.vocab = model.vocab;
  config.max_seq = model.max_seq;
  config.experts = options.experts;
  config.expert_ffn = config.Dense().ffn;
  config.dense_layers = 0;
  config.moe_every = 1;
  config.top_k = options.top_k.value_or(config.top_k);
  if (config.top_k > config.experts) {
    return absl::InvalidArgumentError(
        absl::StrCat("--top-k ", config.top_k, ": a token goes to at most all ",
                     config.experts, " experts; give a smaller --top-k"));
  }
  return config;
}

absl::Status CheckSets(const std::vector<std::string>& sets) {
  for (const std::string& set : sets) {
    const bool model =
        set.starts_with("model.") && !set.starts_with("model.kind");
    if (model || set.starts_with("optimizer.group")) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--set ", set,
        ": only optimizer.group and keys of a model of the kind moe can be set "
        "here; set others when the run resumes"));
  }
  return absl::OkStatus();
}

// What a stage says of MLPs, it says of experts and routers.
ShareSpec WithExperts(ShareSpec share, const std::vector<std::string>& parts) {
  const auto mlp = share.parts.find("mlp");
  if (mlp == share.parts.end()) return share;
  const SharePolicy policy = mlp->second;
  for (const char* const part : {"experts", "router"}) {
    share.parts.try_emplace(part, policy);
  }
  if (std::ranges::find(parts, "mlp") == parts.end()) share.parts.erase(mlp);
  return share;
}

absl::StatusOr<Recipe> RecipeWithExperts(const SavedModel& saved,
                                         const UpcycleOptions& options,
                                         const ModelList& models) {
  DELINK_RETURN_IF_ERROR(CheckSets(options.sets));
  DELINK_ASSIGN_OR_RETURN(const MoeConfig config, WithExperts(saved, options));
  Recipe draft = saved.recipe();
  draft.model = config.Clone();
  // Which parts there are is known when the model is.
  for (Stage& stage : draft.stages) stage.share.parts.clear();
  DELINK_ASSIGN_OR_RETURN(
      Recipe recipe,
      ParseRecipe(ToToml(draft), absl::StrCat(saved.path(), " with experts"),
                  saved.path(), options.sets, KindsOf(models)));
  for (size_t i = 0; i < recipe.stages.size(); ++i) {
    recipe.stages[i].share =
        WithExperts(saved.recipe().stages[i].share, recipe.model->parts());
  }
  return recipe;
}

}  // namespace

absl::StatusOr<std::unique_ptr<UpcycledModel>> Upcycle(
    const SavedModel& saved, const UpcycleOptions& options,
    const ModelList& models) {
  auto upcycled = std::make_unique<UpcycledModel>();
  UpcycledModel& u = *upcycled;
  DELINK_ASSIGN_OR_RETURN(u.recipe, RecipeWithExperts(saved, options, models));
  u.model = BuildModel(models, Scope(u.registry), *u.recipe.model);
  DELINK_ASSIGN_OR_RETURN(const std::vector<TensorInfo> tensors,
                          ListTensors(saved.path()));
  DELINK_ASSIGN_OR_RETURN(u.saved_as, UpcyclingOf(saved.path(), tensors,
                                                  *u.recipe.model, u.registry));
  if (u.saved_as.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        saved.path(),
        ": has experts in all its blocks already; leave --experts out"));
  }
  DELINK_ASSIGN_OR_RETURN(u.before, ReadSharing(saved.path(), u.registry,
                                                u.model->blocks(), u.saved_as));
  u.kept = u.before;
  for (const ParamDecl& decl : u.registry.decls) {
    if (!u.saved_as.IsFresh(decl.name)) continue;
    const auto block = static_cast<size_t>(decl.layer - 1);
    u.kept.leaders[decl.part][block] = u.kept.leaders["experts"][block];
  }
  return upcycled;
}

}  // namespace delink
