// `delink train --init FOLDER` for a Hugging Face model: a new run that begins
// with published weights. Its recipe must describe the model as the folder's
// config.json does. If the first stage shares, each sharing set takes the
// weights of its first layer. If it visits only some blocks, it takes their
// weights.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/module/param_store.h"
#include "recipes/huggingface/folder_values.h"
#include "recipes/huggingface/model_folder.h"
#include "recipes/models/model_list.h"
#include "recipes/schema/recipe.h"

namespace delink {

class FolderInit {
 public:
  // The run that is to begin. Everything here outlives the call.
  struct Target {
    const Recipe* recipe = nullptr;
    const ParamRegistry* registry = nullptr;  // of its model
    std::string_view tokenizer;               // bytes of the corpus's tokenizer
    std::string corpus;                       // names it in messages
    int rank = 0, ranks = 1;                  // rank 0 warns
  };

  // Reads headers, and a tied head if one is stored. Errors as OpenModelFolder
  // and FolderValues::Open; also InvalidArgument: keys of the recipe's [model]
  // that differ from the folder's (lists them all), or a corpus of another
  // tokenizer. `models` outlives this.
  static absl::StatusOr<std::unique_ptr<FolderInit>> Open(
      const std::string& path, const ModelList& models, const Target& target);

  // Fills the weights of a store of that model, in any layout of those ranks.
  // Collective.
  absl::Status Load(Communicator& comm, ParamStore& store);

 private:
  explicit FolderInit(huggingface::ModelFolder folder)
      : folder_(std::move(folder)) {}

  huggingface::ModelFolder folder_;
  std::unique_ptr<huggingface::FolderValues> values_;  // of folder_
};

}  // namespace delink
