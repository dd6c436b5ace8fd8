// Who has what in the pipeline of a stage.
#pragma once

#include <vector>

#include "framework/module/layout.h"
#include "framework/module/sequential.h"
#include "recipes/record/pipeline_table.h"

namespace delink {

// By stage of the pipeline; one row where there is none.
std::vector<PipelineRow> PipelineRows(const Layout& layout,
                                      const Sequential& model);

}  // namespace delink
