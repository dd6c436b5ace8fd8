// Opens a checkpoint for export, after it is verified.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/saved_model.h"

namespace delink {

// As SavedModel::Open, but `threads` threads compute the digests of its files
// in parallel.
absl::StatusOr<std::unique_ptr<SavedModel>> OpenSaved(
    const std::string& checkpoint, const ModelList& models, int threads);

}  // namespace delink
