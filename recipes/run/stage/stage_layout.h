// The layout of a run's stage: which rank has which layers, and the order of
// work.
#pragma once

#include <cstddef>

#include "framework/module/layout.h"
#include "framework/step/plan/planner.h"
#include "recipes/run/stage/stage_run.h"

namespace delink {

// The placement that `auto` found. Everything is on the device if env.homes has
// no entry for the stage.
AutoPlace FoundOf(const RunEnv& env, size_t stage);

// The recipe is fitted to the world (CheckWorld). `sharing` is the stage's own,
// or that of the stage before, which takes this layout at the switch. A
// pipeline is cut by its `layers` if they add up to the visited blocks, else so
// that stages have equal cost of forward and backward. That cost is measured on
// the layers, so their parameters must not be in use.
Layout LayoutOf(const RunEnv& env, size_t stage, const SharingMap& sharing);

// Uses the schedule of `stage`, whose mesh the ranks have; and the
// micro-batches, recompute and placement of activations of stage `layout`. The
// parameters are laid out as `of`.
Planner PlannerOf(const RunEnv& env, size_t stage, size_t layout,
                  const Layout& of);

}  // namespace delink
