// `delink convert IN OUT`: converts models between file formats.
//
//   checkpoint       -> folder of Hugging Face   export.h
//   folder of Hugging Face -> checkpoint         import.h
//   model file of llm.c    -> checkpoint, and back     llm_c.h
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "framework/safetensors/plan.h"
#include "recipes/models/model_list.h"

namespace delink {

enum class ModelForm : uint8_t { kDelink, kHuggingFace, kLlmC };

// The word of --to: "delink", "huggingface", "llmc".
std::string_view ToString(ModelForm form);

struct ConvertOptions {
  std::string in;
  std::string out;  // must not exist
  // If omitted: Hugging Face for a checkpoint, a checkpoint for anything else.
  std::optional<ModelForm> to = {};
  // The dtype of the output; fp32 if omitted. Checkpoints support no other.
  std::optional<safetensors::Type> dtype = {};
  // For a Hugging Face folder only. If omitted: kShardBytes, and a thread per
  // core.
  std::optional<int64_t> shard_bytes = {};
  std::optional<int> threads = {};
  bool dry_run = false;
  // Called now and then with the values done and in all; optional.
  std::function<void(int64_t done, int64_t all)> progress = {};
};

// Lines for people: what was done or, in a dry run, would be. InvalidArgument:
// an unsupported pair of forms, or a dtype, shards or threads that the form
// does not support; other errors as in the headers above.
absl::StatusOr<std::string> Convert(const ConvertOptions& options,
                                    const ModelList& models);

}  // namespace delink
