// `delink train --init FOLDER` of a Hugging Face model: a new run that begins
// with published weights. Its recipe says the same of the model as the folder's
// config.json. A first stage that shares begins with what the first of the
// layers that share has there; one that visits some blocks with theirs.
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
  // What is to begin; all outlives the call.
  struct Target {
    const Recipe* recipe = nullptr;
    const ParamRegistry* registry = nullptr;  // of its model
    std::string_view tokenizer;               // the bytes of its corpus's
    std::string corpus;                       // names it in messages
    int rank = 0, ranks = 1;                  // rank 0 warns
  };

  // Reads headers, and a tied head that is stored all the same. Besides what
  // OpenModelFolder and FolderValues::Open refuse, InvalidArgument: keys of the
  // recipe's [model] that are not the folder's, all of them, or a corpus of
  // another tokenizer. The list outlives this.
  static absl::StatusOr<std::unique_ptr<FolderInit>> Open(
      const std::string& path, const ModelList& models, const Target& target);

  // Fills the weights of a store of that model, in whatever layout of those
  // ranks. Collective.
  absl::Status Load(Communicator& comm, ParamStore& store);

 private:
  explicit FolderInit(huggingface::ModelFolder folder)
      : folder_(std::move(folder)) {}

  huggingface::ModelFolder folder_;
  std::unique_ptr<huggingface::FolderValues> values_;  // of folder_
};

}  // namespace delink
