// The ranks and layers of each pipeline stage.
#pragma once

#include <string>
#include <vector>

#include "framework/module/layout.h"
#include "framework/module/sequential.h"
#include "recipes/record/pipeline_table.h"

namespace delink {

// The common name of `layers` (ascending).
std::string NameOfLayers(const Sequential& model,
                         const std::vector<int>& layers);

// One row per pipeline stage; a single row without a pipeline.
std::vector<PipelineRow> PipelineRows(const Layout& layout,
                                      const Sequential& model);

}  // namespace delink
