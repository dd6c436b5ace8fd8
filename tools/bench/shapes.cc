#include "tools/bench/shapes.h"

#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "recipes/schema/problems.h"
#include "recipes/schema/recipe_io.h"

namespace delink::bench {
namespace {

// The recipe's keys that name a step in a report.
auto ReportKey(const Recipe& r) {
  return std::tuple(r.run.device, r.data.seq, r.data.batch,
                    r.stages.front().share, r.stages.front().depth,
                    r.run.precision, r.run.recompute);
}

}  // namespace

const std::vector<ModelShape>& ModelShapes() {
  static const std::vector<ModelShape> kShapes = {
      {"gpt-10m", "gpt", 6, 256, 8, 8, 1024, 16384, true, 2048, 65536},
      {"llama-10m", "llama", 6, 256, 8, 4, 704, 16384, false, 2048, 65536},
      {"gpt-124m", "gpt", 12, 768, 12, 12, 3072, 50304, true, 1024, 32768},
      {"qwen-0.5b", "llama", 24, 896, 14, 2, 4864, 151936, true, 1024, 16384},
      {"qwen-1.5b", "llama", 28, 1536, 12, 2, 8960, 151936, true, 1024, 16384},
      {"qwen-3b", "llama", 36, 2048, 16, 2, 11008, 151936, true, 1024, 8192},
      {"qwen-7b", "llama", 28, 3584, 28, 4, 18944, 152064, false, 1024, 8192,
       "block"},
      {"moe-8x2", "moe", 4, 512, 8, 8, 1024, 16384, false, 1024, 32768,
       "norm+activation", 8, 2},
      {"moe-64x1", "moe", 4, 512, 8, 8, 512, 16384, false, 4096, 65536,
       "norm+activation", 64, 1},
      {"gpt-tiny", "gpt", 2, 32, 2, 2, 64, 256, true, 64, 64},
      {"llama-tiny", "llama", 2, 32, 2, 1, 64, 256, false, 64, 64},
      {"moe-tiny", "moe", 2, 32, 2, 1, 64, 256, false, 64, 64,
       "norm+activation", 4, 2},
  };
  return kShapes;
}

absl::StatusOr<ModelShape> FindModelShape(std::string_view name) {
  std::vector<std::string> names;
  for (const ModelShape& shape : ModelShapes()) {
    if (shape.name == name) return shape;
    names.push_back(shape.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no shape '", std::string(name), "'",
                   schema::Suggestion(name, names), "; there are ",
                   absl::StrJoin(names, ", ")));
}

std::string ToString(const StepCase& step) {
  return absl::StrFormat(
      "%s, %d x %d tokens%s, share %s, %s%s%s%s", step.shape, step.batch,
      step.seq,
      step.distinct == 0 ? "" : absl::StrCat(" of ", step.distinct, " ids"),
      step.share,
      step.depth == 0 ? "" : absl::StrCat("depth ", step.depth, ", "),
      step.precision,
      step.recompute == StepCase().recompute ? ""
                                             : ", recompute " + step.recompute,
      step.sets.empty() ? "" : ", " + absl::StrJoin(step.sets, ", "));
}

absl::StatusOr<Recipe> RecipeOf(const StepCase& step, const ModelList& models) {
  DELINK_ASSIGN_OR_RETURN(const ModelShape m, FindModelShape(step.shape));
  // Qwen's biases, and Qwen's epsilon.
  std::string more =
      m.kind == "gpt" ? "" : "qkv_bias = true\nnorm_eps = 1e-6\n";
  if (m.experts > 0) {
    absl::StrAppend(&more, "experts = ", m.experts, "\ntop_k = ", m.top_k,
                    "\n");
  }
  const std::string text = absl::StrFormat(
      R"([model]
kind = "%s"
layers = %d
dim = %d
heads = %d
kv_heads = %d
ffn = %d
vocab = %d
tied = %s
%s[data]
train = "none"
seq = %d
batch = %d
[optimizer]
kind = "adamw"
lr = 6e-4
betas = [0.9, 0.95]
decay = 0.1
clip = 1.0
[schedule]
kind = "constant"
steps = 1_000_000
[[stage]]
name = "bench"
share = "%s"
%s
[run]
device = "cpu"
micro_batch = %d
precision = "%s"
recompute = "%s"
)",
      m.kind, m.layers, m.dim, m.heads, m.kv_heads, m.ffn, m.vocab,
      m.tied ? "true" : "false", more, step.seq, step.batch, step.share,
      step.depth == 0 ? "" : absl::StrCat("depth = ", step.depth), step.batch,
      step.precision, step.recompute);
  const auto read = [&](const std::vector<std::string>& sets) {
    return ParseRecipe(text, ToString(step), "", sets, KindsOf(models));
  };
  DELINK_ASSIGN_OR_RETURN(const Recipe plain, read({}));
  DELINK_ASSIGN_OR_RETURN(const Recipe recipe, read(step.sets));
  if (ReportKey(plain) != ReportKey(recipe)) {
    return absl::InvalidArgumentError(
        "--set is for keys that have no option of their own; for the others "
        "use --device, --seq, --batch, --share, --depth, --precision and "
        "--recompute");
  }
  return CheckWorld(recipe, 1);
}

}  // namespace delink::bench
