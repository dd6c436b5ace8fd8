#include "recipes/huggingface/as_recipe.h"

#include <algorithm>
#include <memory>

#include "framework/base/status_macros.h"
#include "recipes/schema/recipe.h"
#include "recipes/schema/recipe_io.h"

namespace delink::huggingface {

absl::StatusOr<std::string> AsRecipe(const ModelConfig& config,
                                     const std::string& origin) {
  constexpr int64_t kSequence = 1024;
  Recipe recipe;
  recipe.model = config.Clone();
  recipe.data.train = "corpus/train";
  recipe.data.seq = std::min(config.max_seq, kSequence);
  recipe.data.batch = 8;
  recipe.optimizer.lr = 1e-4;
  recipe.schedule.steps = 1;
  recipe.stages.push_back({.name = "imported"});
  const std::string text = ToToml(recipe);
  const ModelKind kind{std::string(config.kind()), "",
                       [&] { return config.Clone(); }};
  // What is out of a key's range, or fits no other key, is told by the kind's
  // own description.
  DELINK_RETURN_IF_ERROR(
      ParseRecipe(text, origin + " as a recipe", "/", {}, {kind}).status());
  return text;
}

}  // namespace delink::huggingface
