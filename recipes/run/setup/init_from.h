// `delink train --init CHECKPOINT`: a new run that begins with the weights of
// an old one. Everything else starts anew: steps, optimizer state, data and
// schedule. A real model may begin with the weights of a pseudo model; then
// every layer gets its own copy of the shared weights. If the checkpoint's
// stage visits only some blocks, the first stage must visit the same. A model
// with experts may begin with a dense model (recipes/models/upcycling.h).
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "framework/checkpoint/saved_as.h"
#include "framework/module/slab.h"
#include "recipes/schema/model_config.h"

namespace delink {

// The run that is to begin.
struct InitTarget {
  const ModelConfig* model = nullptr;
  const ParamRegistry* registry = nullptr;
  int blocks = 0;
  SharingMap sharing;          // of its first stage
  std::string_view tokenizer;  // bytes of the corpus's tokenizer
  std::string corpus;          // names it in messages
};

// Checks that LoadWeights can fill the first stage from `checkpoint`, a
// verified step folder, and that the corpus has the checkpoint's tokenizer.
// Returns how the checkpoint holds the model. InvalidArgument names the
// tokenizer; the first tensor that is missing on one side or has another shape;
// or the part and blocks that the stage shares and the checkpoint does not; or
// is UpcyclingOf's. Reads no weights.
absl::StatusOr<SavedAs> CheckInit(const std::string& checkpoint,
                                  const InitTarget& target);

}  // namespace delink
