// `delink convert IN OUT`: models between the forms that they are kept in.
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

// As --to has it: "delink", "huggingface", "llmc".
std::string_view ToString(ModelForm form);

struct ConvertOptions {
  std::string in;
  std::string out;  // must not exist
  // Where not given: of a checkpoint Hugging Face's, of what is not one a
  // checkpoint.
  std::optional<ModelForm> to = {};
  // Of what is written; fp32 where not given. Checkpoints have no other.
  std::optional<safetensors::Type> dtype = {};
  // Of a folder of Hugging Face alone; kShardBytes, and as many as cores, where
  // not given.
  std::optional<int64_t> shard_bytes = {};
  std::optional<int> threads = {};
  bool dry_run = false;
  // Told of values that are done and values in all, now and then; optional.
  std::function<void(int64_t done, int64_t all)> progress = {};
};

// What was done, or in a dry run would be: for people, lines. InvalidArgument:
// forms between which there is no way, or a dtype, shards or threads that the
// form does not have; else as the headers above say.
absl::StatusOr<std::string> Convert(const ConvertOptions& options,
                                    const ModelList& models);

}  // namespace delink
