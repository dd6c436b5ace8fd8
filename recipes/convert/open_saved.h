// A checkpoint that is to go out, opened once it is verified.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/saved_model.h"

namespace delink {

// As SavedModel::Open; digests of its files are taken side by side, by so many
// threads.
absl::StatusOr<std::unique_ptr<SavedModel>> OpenSaved(
    const std::string& checkpoint, const ModelList& models, int threads);

}  // namespace delink
