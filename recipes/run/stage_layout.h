// How a stage of a run is laid out: which ranks have which of its layers, and
// in which order they work.
#pragma once

#include <cstddef>

#include "framework/module/layout.h"
#include "framework/step/plan/planner.h"
#include "recipes/run/stage_run.h"

namespace delink {

// What `auto` came to; all on the device where env.homes does not have it.
AutoPlace FoundOf(const RunEnv& env, size_t stage);

// Of a recipe that is fitted to the world (CheckWorld); `sharing` is the
// stage's own, or that of the stage before, which is laid out so at the switch.
// With a pipeline whose `layers` are not of so many blocks it is cut where
// forward and backward cost alike, of which the layers are measured: nobody may
// be using their parameters.
Layout LayoutOf(const RunEnv& env, size_t stage, const SharingMap& sharing);

// Of the schedule of `stage`, over whose mesh it is, with the recompute of
// stage `layout`, whose micro-batches it is for, and activations where that
// stage has them; its parameters are laid out as `of`.
Planner PlannerOf(const RunEnv& env, size_t stage, size_t layout,
                  const Layout& of);

}  // namespace delink
