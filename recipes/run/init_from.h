// `delink train --init CHECKPOINT`: a new run that begins with the weights of
// an old one. Nothing else comes along: steps, optimizer state, data and
// schedule are new. A real model may begin with what a pseudo model learnt;
// then every layer gets its copy of what was shared. A checkpoint of a stage
// that visits some blocks begins one that visits the same.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "framework/module/slab.h"

namespace delink {

// What is to begin.
struct InitTarget {
  const ParamRegistry* registry = nullptr;
  int blocks = 0;
  SharingMap sharing;          // of its first stage
  std::string_view tokenizer;  // the bytes of its corpus's
  std::string corpus;          // names it in messages
};

// Whether LoadWeights can fill the first stage from `checkpoint`, a verified
// step folder, and the corpus is in the checkpoint's tokens. InvalidArgument
// names the tokenizer; the first tensor that one side lacks, or whose shapes
// differ; or the part and blocks that the stage shares and the checkpoint has
// apart. Reads no weights.
absl::Status CheckInit(const std::string& checkpoint, const InitTarget& target);

}  // namespace delink
