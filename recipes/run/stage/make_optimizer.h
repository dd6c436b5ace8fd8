// The optimizer that a recipe asks for.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/optim/slab_optimizer.h"
#include "recipes/run/stage/stage_run.h"
#include "recipes/schema/recipe.h"

namespace delink {

// InvalidArgument: a group of hyper-parameters matches nothing in the registry.
absl::StatusOr<std::unique_ptr<SlabOptimizer>> MakeOptimizer(
    const Recipe& recipe, const ParamRegistry& registry);

// InvalidArgument: groups give different values to layers that share under
// `sharing`, the sharing map of `stage`.
absl::Status CheckGroups(const RunEnv& env, size_t stage,
                         const SharingMap& sharing);

}  // namespace delink
