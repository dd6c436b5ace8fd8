// `delink convert FOLDER OUT` for a Hugging Face folder: writes its weights as
// a checkpoint, step-00000000. --init, eval, generate, inspect and delink
// accept it; --resume refuses it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/sha256.h"
#include "recipes/models/model_list.h"

namespace delink {

struct ImportOptions {
  std::string in;        // the folder
  std::string out;       // must not exist
  bool dry_run = false;  // check everything, write nothing
  // The checkpoint has one file of values per `file_bytes`, but at most 16.
  // Each is written by its own thread.
  int64_t file_bytes = int64_t{1} << 30;
  // Called now and then, by one thread at a time, with the values done and in
  // all; optional.
  std::function<void(int64_t done, int64_t all)> progress = {};
};

struct ImportReport {
  struct Tensor {
    std::string ours;
    std::vector<int64_t> shape;
    std::vector<std::string> theirs;  // the tensors stacked in it, in order
    std::string dtype;                // of the first of them: "BF16"
    int64_t bytes = 0;                // in the checkpoint
  };
  std::string from;    // the folder
  std::string to;      // the step folder
  std::string family;  // "llama"
  std::string kind;    // of our model: "llama"
  std::vector<Tensor> tensors;
  int64_t parameters = 0;
  int64_t bytes = 0;
  bool written = false;
  std::vector<FileSum> files;  // of the step folder, where written
  // Further remarks, a sentence each, such as a tokenizer that could not be
  // converted.
  std::vector<std::string> notes;
};

// Holds a piece of a tensor at a time, however large the model. Writes to
// OUT.tmp first (output_folder.h); after a failure nothing is left there or at
// options.out. AlreadyExists: options.out exists. Errors of the folder are
// those of huggingface::OpenModelFolder and FolderValues::Open.
absl::StatusOr<ImportReport> ImportHuggingFace(const ImportOptions& options,
                                               const ModelList& models);

// Lines for people; lists every tensor if nothing was written.
std::string ToString(const ImportReport& report);

}  // namespace delink
