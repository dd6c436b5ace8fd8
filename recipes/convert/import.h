// `delink convert FOLDER OUT` of a Hugging Face folder: a checkpoint of its
// weights, step-00000000, which --init, eval, generate, inspect and delink take
// and --resume refuses.
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
  bool dry_run = false;  // everything is checked, nothing written
  // A checkpoint's values are in one file for each so many bytes of them, at
  // most 16, each written by a thread of its own.
  int64_t file_bytes = int64_t{1} << 30;
  // Told of values that are done and values in all, now and then, by one thread
  // at a time; optional.
  std::function<void(int64_t done, int64_t all)> progress = {};
};

struct ImportReport {
  struct Tensor {
    std::string ours;
    std::vector<int64_t> shape;
    std::vector<std::string> theirs;  // what it is stacked of, in order
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
  // What is to be known besides, a sentence each: a tokenizer that could not be
  // taken along.
  std::vector<std::string> notes;
};

// A piece of a tensor at a time, however large the model. Written as OUT.tmp
// (output_folder.h): on any failure nothing is left at options.out, nor there.
// AlreadyExists: options.out is there. Bad folders are refused as
// huggingface::OpenModelFolder and FolderValues::Open say.
absl::StatusOr<ImportReport> ImportHuggingFace(const ImportOptions& options,
                                               const ModelList& models);

// For people, lines; every tensor where nothing was written.
std::string ToString(const ImportReport& report);

}  // namespace delink
