// The part that all imports share: writes the imported weights as the
// checkpoint step-00000000.
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
  const Layout* layout = nullptr;  // of one rank, without sharing
  // The values of its tensors; Read is thread-safe.
  ValueSource* values = nullptr;
  CheckpointFiles files = {};  // small files to include
};

// The tokenizer of a model without one: reads and writes ids. `end` ends
// documents; if it is -1 (not known), the last id does.
std::unique_ptr<Tokenizer> IdsTokenizer(int64_t vocab, int32_t end = -1);

// Writes the checkpoint, as OUT.tmp until it is complete (output_folder.h), and
// fills the report's `from`, `to` and what was written. A dry run checks
// everything and writes nothing. After a failure nothing is left at options.out
// or in OUT.tmp.
absl::Status WriteImport(const ImportOptions& options,
                         const ImportedModel& model, const ModelList& models,
                         ImportReport& report);

}  // namespace delink
