#include "recipes/huggingface/as_recipe.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "recipes/schema/describe.h"
#include "recipes/schema/recipe_io.h"
#include "recipes/schema/writer.h"

namespace delink::huggingface {

absl::StatusOr<std::string> AsRecipe(const ModelConfig& config,
                                     const std::string& origin) {
  constexpr int64_t kSequence = 1024;
  std::vector<schema::Entry> entries;
  schema::Writer writer(&entries);
  std::shared_ptr<const ModelConfig> model = config.Clone();
  schema::DescribeModel(writer, &model, {});
  const std::string text = absl::StrCat(
      "# The model is what the weights were made for. The rest is to be "
      "replaced\n# before anything is trained by this recipe.\n",
      schema::ToToml(entries),
      "\n[data]\ntrain = \"corpus/train\"\n"
      "seq = ",
      std::min(config.max_seq, kSequence),
      "\nbatch = 8\n\n"
      "[optimizer]\nkind = \"adamw\"\nlr = 1e-4\n\n"
      "[schedule]\nkind = \"constant\"\nsteps = 1\n\n"
      "[[stage]]\nname = \"imported\"\nshare = \"none\"\n\n"
      "[run]\nmicro_batch = 1\n");
  const ModelKind kind{std::string(config.kind()), "",
                       [&] { return config.Clone(); }};
  // The kind's own description reports values out of range and keys that
  // conflict.
  DELINK_RETURN_IF_ERROR(
      ParseRecipe(text, absl::StrCat(origin, " as a recipe"), "/", {}, {kind})
          .status());
  return text;
}

}  // namespace delink::huggingface
