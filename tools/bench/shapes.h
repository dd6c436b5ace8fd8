// The measured models, by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/device/backend.h"
#include "recipes/models/model_list.h"
#include "recipes/schema/recipe.h"

namespace delink::bench {

struct ModelShape {
  std::string name;
  std::string kind;  // gpt, llama, moe: a llama of experts of width ffn
  int64_t layers = 0, dim = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0;
  bool tied = true;
  // Tokens of a step if no batch is given, on the CPU and on a GPU.
  int64_t step_tokens = 0, gpu_step_tokens = 0;
  std::string recompute = "norm+activation";  // default on a GPU
  int64_t experts = 0, top_k = 0;

  int64_t StepTokens(DeviceKind device) const {
    return IsCuda(device) ? gpu_step_tokens : step_tokens;
  }
};

// gpt-10m, llama-10m, gpt-124m; in Qwen2.5's sizes qwen-0.5b, qwen-1.5b,
// qwen-3b and qwen-7b; with experts moe-8x2 and moe-64x1; and gpt-tiny,
// llama-tiny and moe-tiny, which take no time but whose results mean nothing.
const std::vector<ModelShape>& ModelShapes();
// InvalidArgument lists the known names.
absl::StatusOr<ModelShape> FindModelShape(std::string_view name);

// One measured step.
struct StepCase {
  std::string shape;
  int64_t seq = 256;
  int64_t batch = 0;  // sequences, one micro-batch
  std::string share = "none";
  int64_t depth = 0;  // it visits the first `depth` blocks; 0: all
  std::string precision = "fp32";
  std::string recompute = "norm+activation";
  int64_t distinct = 0;  // tokens have the first `distinct` ids; 0: any
  std::vector<std::string> sets;  // keys of its recipe, as `train --set`

  friend bool operator==(const StepCase&, const StepCase&) = default;
};

// "gpt-124m 4 x 256, share all, fp32".
std::string ToString(const StepCase& step);

// The recipe of such a step, as `train` would read it. No corpus is needed.
// InvalidArgument if `train` does not accept the case.
absl::StatusOr<Recipe> RecipeOf(const StepCase& step, const ModelList& models);

}  // namespace delink::bench
