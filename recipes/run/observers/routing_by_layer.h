// How the routers of a step spread their tokens over experts.
#pragma once

#include <optional>

#include "framework/step/engine/executor.h"
#include "recipes/record/run_event.h"
#include "recipes/run/stage/stage_run.h"

namespace delink {

// From what the layers with experts added up in a step (ops::RouteSum). None if
// the model has no such layers.
std::optional<RoutingByLayer> RoutingOf(StageRun& stage,
                                        const StepResult& result);

}  // namespace delink
