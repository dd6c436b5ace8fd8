// The optimizer that a recipe asks for.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/optim/param_rules.h"
#include "framework/optim/slab_optimizer.h"
#include "recipes/run/stage/stage_run.h"
#include "recipes/schema/recipe.h"

namespace delink {

// With the hyper-parameters of the first stage. InvalidArgument: a group of
// them matches nothing in the registry.
absl::StatusOr<std::unique_ptr<SlabOptimizer>> MakeOptimizer(
    const Recipe& recipe, const ParamRegistry& registry);

// The hyper-parameters of a stage. Errors as MakeOptimizer's.
absl::StatusOr<ParamRules> RulesOf(const Recipe& recipe,
                                   const ParamRegistry& registry, size_t stage);

// InvalidArgument: groups give different values to layers that share under
// `sharing`, the sharing map of `stage`.
absl::Status CheckGroups(const RunEnv& env, size_t stage,
                         const SharingMap& sharing);

}  // namespace delink
