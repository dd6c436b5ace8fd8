// What the ranks of a pipeline would take, send and wait. Without one there is
// one stage of it, of all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/device/backend.h"
#include "framework/step/instruction.h"
#include "framework/step/memory.h"
#include "framework/step/step_time.h"
#include "recipes/record/pipeline_table.h"
#include "recipes/run/imagined_stage.h"

namespace delink {

// What a rank exchanges in a step in one way with the same kind of group.
struct ExchangePlan {
  // "gradients", "weights", "boundaries"; "activations" in the middle of
  // visits, "updates" of those.
  std::string what;
  std::string kind;   // "reduce-scatter", "all-gather", "all-reduce", "send"
  std::string along;  // axes of the mesh along which the group lies: "data"
  int64_t ranks = 0;  // of the group
  int64_t count = 0;
  int64_t bytes = 0;  // of all of these, whole
};

struct PipelineStagePlan {
  PipelineRow row;
  int64_t rank = 0;       // that holds most, of which the rest is
  MemoryAccount account;  // as it says itself
  std::vector<MemoryLedger::Entry> taken;  // the same by name
  Program program;                         // of one step
  std::vector<Sent> sent;                  // by its instructions
  std::vector<std::string> slabs;          // that it has
  // The ranks that have the same slabs of these, each once.
  std::vector<std::vector<int>> groups;
  // Bytes of a step: of activations and their gradients that it sends to its
  // neighbours, of gradients that it adds up with the other ranks of each
  // slab's group, and of planes that it then gathers with them.
  int64_t sent_bytes = 0;
  int64_t reduced_bytes = 0;
  int64_t gathered_bytes = 0;
  std::vector<ExchangePlan> exchanges;  // the same one by one, and what else
};

// Slabs that the same stages of the pipeline have.
struct SharedSlabs {
  std::vector<int> stages;
  int64_t ranks = 0;  // their group
  std::vector<std::string> slabs;
  int64_t gradient_bytes = 0;  // that the group adds up in a step
};

struct PipelinePlan {
  std::vector<PipelineStagePlan> stages;
  std::vector<SharedSlabs> shared;
  double bubble = 0;                 // planned (pipeline_time.h)
  std::vector<std::string> picture;  // a row a stage; none without a pipeline
};

// Of `first`, the stage on rank 0: makes it on those ranks of each stage of the
// pipeline that hold most.
absl::StatusOr<PipelinePlan> PlanPipeline(ImaginedStage& first);

}  // namespace delink
