// `delink convert CHECKPOINT OUT`: a checkpoint as a folder of Hugging Face,
// which `transformers` loads: config.json, generation_config.json, the
// tokenizer's files, safetensors, and SHA256SUMS of all of them.
//
// Each layer goes out with weights of its own, also where the checkpoint shares
// them; blocks that its stage does not visit are not part of the model.
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
  int threads = 1;       // some of which wait for the disk
  bool dry_run = false;  // everything is checked, nothing written
  // Told of values that are done and values in all, now and then; optional.
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
  // What is to be known besides, a sentence each.
  std::vector<std::string> notes;
};

// A piece of a tensor at a time, however large the model: some tens of MiB a
// thread. The checkpoint is verified while it is read, or first where it cannot
// be so.
// What was cut short (OUT.tmp) is gone on with where it is of the same
// checkpoint, dtype and program: files that are whole stay. On any failure
// nothing is left at options.out, nor in OUT.tmp. InvalidArgument: a model that
// no family of its kind expresses, with each one's reason; a value that is too
// large for the dtype. AlreadyExists: options.out is there.
absl::StatusOr<ExportReport> ExportHuggingFace(const ExportOptions& options,
                                               const ModelList& models);

// For people, lines; every tensor where nothing was written.
std::string ToString(const ExportReport& report);

}  // namespace delink
