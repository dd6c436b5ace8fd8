// A folder of a Hugging Face model: what its config.json says, and its
// safetensors, of which no value is read here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "framework/safetensors/folder.h"
#include "recipes/huggingface/family.h"
#include "recipes/schema/model_config.h"

namespace delink::huggingface {

// Says how a model is to be sampled, and which ids end what it says: nothing
// that we compute by. It travels as it is.
inline constexpr char kGenerationConfig[] = "generation_config.json";

struct ModelFolder {
  std::string path;
  const Family* family = nullptr;
  std::shared_ptr<const ModelConfig> config;
  safetensors::Folder tensors;
  // eos_token_id of config.json, of several the first; -1: none is said that
  // the vocabulary has.
  int32_t end_of_text = -1;
};

// Whether a folder is meant to be one: it has a config.json or safetensors, or
// weights in the form before them, and no checkpoints of ours, beside which
// such a file means nothing.
bool IsModelFolder(const std::string& path);

// Reads config.json and the headers of all files. `families` outlive the
// result. InvalidArgument, NotFound, DataLoss: a folder without a config or
// without safetensors, of a family that is not among them (the message lists
// them), a config that our model cannot express (all its keys, each with the
// reason), files that are damaged.
absl::StatusOr<ModelFolder> OpenModelFolder(
    const std::string& path, std::span<const Family* const> families);

}  // namespace delink::huggingface
