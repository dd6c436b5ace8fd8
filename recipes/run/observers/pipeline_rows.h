// The ranks and layers of each pipeline stage.
#pragma once

#include <vector>

#include "framework/module/layout.h"
#include "framework/module/sequential.h"
#include "recipes/record/pipeline_table.h"

namespace delink {

// One row per pipeline stage; a single row without a pipeline.
std::vector<PipelineRow> PipelineRows(const Layout& layout,
                                      const Sequential& model);

}  // namespace delink
