// A folder of a Hugging Face model: its config.json and its safetensors. No
// values are read here.
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

// Sampling settings and end-of-text ids. We do not use it; import and export
// copy it unchanged.
inline constexpr char kGenerationConfig[] = "generation_config.json";

struct ModelFolder {
  std::string path;
  const Family* family = nullptr;
  std::shared_ptr<const ModelConfig> config;
  safetensors::Folder tensors;
  // eos_token_id of config.json, the first of several; -1: none that is in the
  // vocabulary.
  int32_t end_of_text = -1;
};

// Whether a folder looks like a model folder: it has a config.json, safetensors
// or weights in the older format, and no checkpoints of ours.
bool IsModelFolder(const std::string& path);

// Reads config.json and the headers of all files. `families` outlive the
// result. InvalidArgument, NotFound or DataLoss: no config or no safetensors; a
// family that is not in `families` (the message lists them); a config that our
// model cannot express (lists all such keys with reasons); damaged files.
absl::StatusOr<ModelFolder> OpenModelFolder(
    const std::string& path, std::span<const Family* const> families);

}  // namespace delink::huggingface
