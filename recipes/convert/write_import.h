// What all ways into a checkpoint have in common: a model that comes from
// elsewhere is written as step-00000000, weights only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/module/layout.h"
#include "framework/module/value_end.h"
#include "recipes/convert/import.h"
#include "recipes/models/model_list.h"
#include "recipes/schema/model_config.h"

namespace delink {

struct ImportedModel {
  std::string path;  // where it is from, for messages
  std::string what;  // "a Hugging Face model of the family llama"
  const ModelConfig* config = nullptr;
  const Tokenizer* tokenizer = nullptr;
  const Layout* layout = nullptr;  // of one rank, of which nothing is shared
  // Of its tensors; Read is thread-safe.
  ValueSource* values = nullptr;
  CheckpointFiles files = {};  // small ones that come along
};

// AlreadyExists: there is something at `out`.
absl::Status CheckImportOut(const std::string& out);

// The tokenizer of a model that has none: takes and gives ids. `end` ends
// documents; where it is -1, not known, the last of them.
std::unique_ptr<Tokenizer> IdsTokenizer(int64_t vocab, int32_t end = -1);

// Writes the checkpoint, as OUT.tmp until it is whole (output_folder.h), and
// tells the report where from and to, and what was written. In a dry run
// everything is checked but nothing written. On any failure nothing is left at
// options.out, nor in OUT.tmp.
absl::Status WriteImport(const ImportOptions& options,
                         const ImportedModel& model, const ModelList& models,
                         ImportReport& report);

}  // namespace delink
