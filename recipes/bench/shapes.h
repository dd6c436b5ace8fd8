// The models that are measured, by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "recipes/models/model_list.h"
#include "recipes/schema/recipe.h"

namespace delink::bench {

struct ModelShape {
  std::string name;
  std::string kind;  // gpt, llama
  int64_t layers = 0, dim = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0;
  bool tied = true;
  int64_t step_tokens = 0;  // of a step, unless a batch is given
};

// gpt-10m, llama-10m, gpt-124m; and gpt-tiny and llama-tiny, which take no time
// and tell nothing.
const std::vector<ModelShape>& ModelShapes();
// InvalidArgument with the names there are.
absl::StatusOr<ModelShape> FindModelShape(std::string_view name);

// One step that is measured.
struct StepCase {
  std::string shape;
  int64_t seq = 256;
  int64_t batch = 0;  // sequences, one micro-batch
  std::string share = "none";
  std::string precision = "fp32";
  std::string recompute = "none";

  friend bool operator==(const StepCase&, const StepCase&) = default;
};

// "gpt-124m 4 x 256, share all, fp32".
std::string ToString(const StepCase& step);

// The recipe of such a step, as `train` would read it. No corpus is needed.
// InvalidArgument where the case is not one that `train` takes.
absl::StatusOr<Recipe> RecipeOf(const StepCase& step, const ModelList& models);

}  // namespace delink::bench
