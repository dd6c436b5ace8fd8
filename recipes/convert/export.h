// `delink convert CHECKPOINT OUT`: writes a checkpoint as a Hugging Face folder
// that `transformers` loads: config.json, generation_config.json, the
// tokenizer's files, safetensors, and SHA256SUMS of all of them.
//
// Each layer gets its own weights, even if the checkpoint shares them. Blocks
// that its stage does not visit are left out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/sha256.h"
#include "framework/safetensors/plan.h"
#include "recipes/models/model_list.h"

namespace delink {

struct ExportOptions {
  std::string in;   // what FindCheckpoint takes
  std::string out;  // must not exist
  safetensors::Type dtype = safetensors::Type::kF32;  // one with values
  int64_t shard_bytes = safetensors::kShardBytes;
  int threads = 1;       // some of them wait for the disk
  bool dry_run = false;  // check everything, write nothing
  // Called now and then with the values done and in all; optional.
  std::function<void(int64_t done, int64_t all)> progress = {};
};

struct ExportReport {
  struct Tensor {
    std::string theirs;
    std::vector<int64_t> shape;
    int64_t bytes = 0;
    std::string file;
    std::string ours;  // the tensor of the checkpoint that has its values
  };
  std::string from;  // the step folder
  std::string to;
  std::string model_type, architecture;  // "llama", "LlamaForCausalLM"
  safetensors::Type dtype = safetensors::Type::kF32;
  bool written = false;
  std::vector<Tensor> tensors;
  int64_t parameters = 0, bytes = 0;  // of all tensors
  std::vector<FileSum> files;         // what was written
  // Further remarks, a sentence each.
  std::vector<std::string> notes;
};

// Holds a piece of a tensor at a time, however large the model: some tens of
// MiB per thread. The checkpoint is verified while it is read, or before if
// that is not possible. An interrupted export (OUT.tmp) continues if it has the
// same checkpoint, dtype, shard size and program; its complete files stay.
// After a failure nothing is left at options.out or in OUT.tmp.
// InvalidArgument: no family of the model's kind can express it, with each
// family's reason; a value too large for the dtype. AlreadyExists: options.out
// exists.
absl::StatusOr<ExportReport> ExportHuggingFace(const ExportOptions& options,
                                               const ModelList& models);

// Lines for people; lists every tensor if nothing was written.
std::string ToString(const ExportReport& report);

}  // namespace delink
