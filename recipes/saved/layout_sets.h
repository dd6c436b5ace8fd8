// `--set` for commands that use a checkpoint. It can only change where the
// weights of the checkpoint's stage are: how they are sharded over tensor,
// pipeline, expert and (zero = 3) data ranks, and which of them are
// host-resident.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "recipes/schema/recipe.h"

namespace delink {

struct SavedSets {
  std::vector<std::string> parallel, offload;  // by key of the stage
};

// InvalidArgument: any other key or stage.
absl::StatusOr<SavedSets> SortSets(const std::vector<std::string>& sets,
                                   size_t stage);

// Applies the sets of `parallel` in order: "stage.1.parallel.tensor=2", or
// "stage.1.parallel={tensor=2}", which sets omitted keys to 1, zero and shard
// to 0. InvalidArgument: another key of it, or a wrong value.
absl::Status SetParallel(const std::vector<std::string>& sets, size_t stage,
                         ParallelConfig& parallel);

}  // namespace delink
