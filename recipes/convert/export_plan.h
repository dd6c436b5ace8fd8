// Plans a checkpoint's export to a Hugging Face family: the tensors to write,
// and the tensor of ours that each comes from. Reads no values.
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
  std::vector<std::string> ours;            // by tensor, its tensor of ours
  std::vector<const LogicalTensor*> moves;  // tensors of ours, each once
  ExportTargets targets;                    // of these
};

// Plans the blocks that the checkpoint visits. `layout`: of the saved model,
// without sharing; it and `models` outlive the plan. InvalidArgument: no family
// of the model's kind can express the model.
absl::StatusOr<ExportPlan> PlanExport(const SavedModel& saved,
                                      const Layout& layout,
                                      const ModelList& models,
                                      safetensors::Type dtype);

}  // namespace delink
