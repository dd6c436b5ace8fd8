// A checkpoint as a family of Hugging Face has it: which tensors go out, and
// which of ours each is. Nothing of the values is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/layout.h"
#include "framework/safetensors/plan.h"
#include "recipes/convert/safetensors_sink.h"
#include "recipes/huggingface/family.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/saved_model.h"

namespace delink {

struct ExportPlan {
  const huggingface::Family* family = nullptr;
  std::string config;  // the family's part of config.json
  int64_t pairs = 0;   // as SafetensorsSink's
  std::vector<safetensors::PlannedTensor> tensors;
  std::vector<std::string> ours;            // of each, the tensor of ours
  std::vector<const LogicalTensor*> moves;  // those of ours, each once
  ExportTargets targets;                    // of these
};

// Of the blocks that the checkpoint visits. `layout`: of the saved model,
// shared by nobody; it and `models` outlive the plan. InvalidArgument: no
// family of the model's kind has such a model.
absl::StatusOr<ExportPlan> PlanExport(const SavedModel& saved,
                                      const Layout& layout,
                                      const ModelList& models,
                                      safetensors::Type dtype);

}  // namespace delink
