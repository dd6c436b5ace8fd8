// `delink inspect`: what a checkpoint holds, for people and for programs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/checkpoint/checkpoint.h"
#include "recipes/models/model_list.h"
#include "recipes/run/position/saved_run.h"
#include "recipes/saved/routers.h"

namespace delink {

// How the visited blocks that have a part share it.
struct PartSharing {
  std::string part;
  std::vector<std::vector<int>> sets;  // of blocks; each uses one slab
};

struct Inspection {
  std::string path;  // the step folder
  CheckpointHeader header;
  SavedRun run;
  // Whether the program has the model's kind. If not, the following members are
  // derived from the tensors, and `sharing` has an entry for each tensor of a
  // block.
  bool known = true;
  int64_t blocks = 0;              // of the model; 0: not known
  std::vector<int> visited;        // blocks, ascending
  int64_t unique_parameters = 0;   // that exist
  int64_t virtual_parameters = 0;  // that layers see
  int64_t active_parameters = 0;   // of these: that work on a token
  int64_t bytes = 0;               // on disk
  std::vector<PartSharing> sharing;
  Routers routers;                  // none if the kind is not known
  std::vector<TensorInfo> tensors;  // in name order
  // By name, "vector", "vectors", "matrix" or "matrices"; empty if the program
  // does not know the model's kind.
  std::map<std::string, std::string> kinds;
  // Links outside the blocks, such as a tied head. Delinking keeps them.
  std::vector<TensorInfo> permanent;
};

// Verifies the checkpoint, then reads it; needs no memory for weights.
// `checkpoint`: what FindCheckpoint takes.
absl::StatusOr<Inspection> InspectCheckpoint(const std::string& checkpoint,
                                             const ModelList& models);

// "blocks 0-11 share", "blocks 0-2, 3-5 share", "nothing is shared".
std::string InWords(const PartSharing& sharing);

// "all 4 block(s)", "2 of 8 blocks visited: 0 and 4"; "2 block(s): 0 and 4" if
// the model's number of blocks is not known.
std::string DepthInWords(const Inspection& inspection);

// Lines for people; one JSON object, with a newline.
std::string ToText(const Inspection& inspection);
std::string ToJson(const Inspection& inspection);

}  // namespace delink
