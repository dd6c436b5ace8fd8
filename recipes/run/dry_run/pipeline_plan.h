// What the ranks of a pipeline would take, send and wait. Without a pipeline
// there is a single pipeline stage with all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/device/backend.h"
#include "framework/step/plan/memory.h"
#include "framework/step/program/instruction.h"
#include "framework/step/time/step_time.h"
#include "framework/step/time/trace.h"
#include "offload/rates/kernel_prices.h"
#include "recipes/record/pipeline_table.h"
#include "recipes/run/dry_run/imagined_stage.h"
#include "recipes/run/dry_run/known_rates.h"
#include "recipes/run/dry_run/step_exchanges.h"

namespace delink {

// One kind of exchange of a rank in a step, with one kind of group.
struct ExchangePlan {
  // "gradients", "weights", "boundaries"; "activations" within visits,
  // "updates" within updates.
  std::string what;
  std::string kind;   // "reduce-scatter", "all-gather", "all-reduce", "send"
  std::string along;  // mesh axes of the group: "data"
  int64_t ranks = 0;  // of the group
  int64_t count = 0;
  int64_t bytes = 0;  // of all of them together
};

// Of sharded gradients (ZeRO-2), on one rank.
struct WholeGradients {
  int64_t bytes = 0;  // of the memory for whole ones
  int64_t all = 0;    // that whole ones of all slabs would take
};

struct PipelineStagePlan {
  PipelineRow row;
  int64_t rank = 0;       // that holds most; the rest is for it
  MemoryAccount account;  // as that rank reports it
  std::vector<MemoryLedger::Entry> taken;  // the same by name
  WholeGradients whole;
  Program program;  // of one step
  // By its instructions: what they exchange, and send or copy.
  std::vector<std::vector<StepExchange>> exchanged;
  std::vector<Sent> sent;
  // With rates: seconds by themselves, and what a trace says of them.
  std::vector<offload::WorkSeconds> seconds;
  std::vector<Trace::Entry> entries;
  // Of the rank: what it writes to a checkpoint, and what a switch brings it.
  int64_t saved_bytes = 0, switched_bytes = 0;
  std::vector<std::string> slabs;  // of the stage
  // Groups of ranks that have the same of these slabs, each group once.
  std::vector<std::vector<int>> groups;
  // Bytes per step: activations and their gradients sent to its neighbours,
  // gradients reduced with the other ranks of each slab's group, and planes
  // that are then all-gathered with them.
  int64_t sent_bytes = 0;
  int64_t reduced_bytes = 0;
  int64_t gathered_bytes = 0;
  std::vector<ExchangePlan> exchanges;  // each of these, and all others
};

// Slabs that the same pipeline stages have.
struct SharedSlabs {
  std::vector<int> stages;
  int64_t ranks = 0;  // their group
  std::vector<std::string> slabs;
  int64_t gradient_bytes = 0;  // that the group reduces in a step
};

struct PipelinePlan {
  std::vector<PipelineStagePlan> stages;
  std::vector<SharedSlabs> shared;
  double bubble = 0;                 // planned (pipeline_time.h)
  std::vector<std::string> picture;  // a row per stage; none without a pipeline
};

// Every rank's program, by column, stage.
std::vector<Column> ColumnsOf(const PipelinePlan& plan, const Mesh& mesh);

// The plan of `first`, the stage on rank 0. Creates the stage on the heaviest
// rank of each pipeline stage. `rates`: of a whole node.
absl::StatusOr<PipelinePlan> PlanPipeline(ImaginedStage& first,
                                          const KnownRates* rates = nullptr);

}  // namespace delink
