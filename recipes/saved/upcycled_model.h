// The model that a checkpoint becomes when its MLPs become experts
// (recipes/models/upcycling.h), and the checkpoint seen as one of this model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/checkpoint/saved_as.h"
#include "framework/module/sequential.h"
#include "framework/module/sharing_map.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/saved_model.h"
#include "recipes/schema/recipe.h"

namespace delink {

struct UpcycleOptions {
  int64_t experts = 0;
  std::optional<int64_t> top_k;   // omitted: 2, or 1 of 1
  std::vector<std::string> sets;  // keys of the model, and groups
};

struct UpcycledModel {
  Recipe recipe;
  ParamRegistry registry;
  std::unique_ptr<Sequential> model;
  SavedAs saved_as;
  // The checkpoint's sharing by the parts of this model; and the same with
  // routers that share as their experts do.
  SharingMap before, kept;
};

// The recipe is the checkpoint's with its model as the blocks of a `moe`: every
// block has experts, all of their gates add up to 1, and a policy of a stage
// for `mlp` is one for experts and routers. Options that set keys change this.
// InvalidArgument: there is no MLP to copy, or UpcyclingOf's errors.
absl::StatusOr<std::unique_ptr<UpcycledModel>> Upcycle(
    const SavedModel& saved, const UpcycleOptions& options,
    const ModelList& models);

}  // namespace delink
