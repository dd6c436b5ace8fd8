// `delink plan`: what each stage of a recipe would take, without training.
//
// No size is computed separately here. The code that trains a stage creates it
// on a device that allocates nothing, as one rank among imagined ones: the rank
// that holds most, for each pipeline stage. The memory account is the one that
// `train` prints before its first step. Time is given in FLOPs, and in the
// seconds that these take at least.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/link.h"
#include "framework/device/backend.h"
#include "framework/step/plan/memory.h"
#include "framework/tensor/dtype.h"
#include "recipes/models/model_list.h"
#include "recipes/plan/offload_plan.h"
#include "recipes/plan/step_trace.h"
#include "recipes/run/dry_run/machine_step.h"
#include "recipes/run/dry_run/pipeline_plan.h"
#include "recipes/run/dry_run/planned_machine.h"

namespace delink {

// Host memory of a rank beyond its account, if planes are host-resident: an
// upper bound for the program, its libraries, batches read ahead and pieces of
// a checkpoint being saved. For the CPU; a GPU's driver takes more.
inline constexpr int64_t kProgramBytes = int64_t{64} << 20;

struct PlanOptions {
  std::string recipe;             // path
  std::vector<std::string> sets;  // "key=value"
  int64_t ranks = 0;              // 0: as the recipe's stages say, or 1
  int64_t ranks_per_node = 0;     // 0: all are on one
  // Per rank, if the recipe does not say; 0: this process's threads, divided
  // among the ranks.
  int64_t threads = 0;
  // A trace of a run of the recipe on these ranks. Stages with traced steps get
  // a TracedTime. Empty: no trace.
  std::string trace;
  Link link;  // between ranks, with a trace
  Link bus;   // between host and device, each way
  // A file: the plan is for its machine. Empty: for this one.
  std::string machine;
  // With a machine: where to write the simulated steps. Empty: nowhere.
  std::string trace_out;
};

// A stage with another ZeRO stage, with all "auto" planes on the device.
struct ZeroPlan {
  int64_t zero = 0;
  int64_t device = 0;  // bytes of the rank that has most
  int64_t reduced_bytes = 0, gathered_bytes = 0;  // as StagePlan's
};

struct StagePlan {
  std::string name;
  // Steps of the run, if no stage ends early because of measurements.
  int64_t begin = 0, end = 0;
  int64_t tokens = 0;
  int64_t depth = 0;   // blocks that it visits
  int64_t blocks = 0;  // of the model
  bool may_end_early = false;
  std::vector<std::string> sharing;  // a line for each part
  int64_t unique_parameters = 0;     // that exist
  int64_t virtual_parameters = 0;    // that layers see
  int64_t active_parameters = 0;     // of these: that work on a token
  Mesh mesh;
  std::string ranks;  // their arrangement, in words
  // By pipeline stage, for the rank that holds most.
  PipelinePlan pipeline;
  MemoryAccount account;  // of the one that holds most
  // The same by purpose, with the number of allocations.
  std::vector<MemoryLedger::Entry> taken;
  WholeGradients whole;
  // By rank, the peak at the switch into this stage (switch_memory.h); empty
  // for the first stage.
  std::vector<int64_t> switch_by_rank;
  int64_t switch_bytes = 0;   // of the rank that has most
  int64_t switch_planes = 0;  // the same, planes only
  int64_t micro_batch = 0;    // sequences
  int64_t micro_batches = 0;  // that a rank accumulates
  double flops_per_token = 0;
  double flops_per_step = 0;  // of all ranks
  // As in PipelineStagePlan, each for the rank with most of it.
  int64_t sent_bytes = 0;
  int64_t reduced_bytes = 0;
  int64_t gathered_bytes = 0;
  std::optional<TracedTime> traced;
  std::optional<MachineStep> simulated;  // with a machine
  std::optional<OffloadPlan> offload;    // if the stage has such a key
  // If it has a budget of the device, and several ranks have a slab.
  std::vector<ZeroPlan> zeros;

  int64_t steps() const { return end - begin; }
  double flops() const { return flops_per_step * static_cast<double>(steps()); }
};

// A step of a pseudo stage, beside the last stage's (pseudo_plan.h).
struct PseudoPlan {
  std::string name;
  int64_t depth = 0;
  double seconds = 0;
  TimeParts parts;  // of the critical path
  MemoryAccount account;
};

struct RunPlan {
  std::string recipe;  // path
  std::string model;   // kind
  int64_t vocab = 0;
  int64_t ranks = 1;
  // A rank's device and threads, and its weights' type.
  DeviceKind device = DeviceKind::kCpu;
  int threads = 1;
  DType precision = DType::kF32;
  std::optional<PlannedMachine> machine;  // of a file
  std::vector<StagePlan> stages;
  std::vector<PseudoPlan> pseudo;  // after FindPseudo
  // Peak FLOP/s of all ranks, to which training speed is compared
  // (recipes/record/run_peak.h). 0: not known; after FindPeak, `no_peak` says
  // why.
  double peak_flops = 0;
  std::string no_peak;

  // The peak of a rank's device memory over the whole run.
  int64_t peak_bytes() const;
  double flops() const;
  // With a machine: simulated.
  double seconds() const;
  // The time of `flops` on all ranks at their peak, which must be known.
  double LeastSeconds(double flops) const { return flops / peak_flops; }
};

// If the recipe has no model.vocab, reads the corpus's vocabulary, and nothing
// else of it. Errors are those that `train` gives for the recipe.
absl::StatusOr<RunPlan> PlanRun(const PlanOptions& options,
                                const ModelList& models);

// Sets `peak_flops`: that of the plan's machine, or, as if all ranks were on
// this machine, from the stored peak, else from a measurement, as a run does
// (RankPeak).
void FindPeak(RunPlan& plan);

// Lines for people, or one JSON object; on request with the program.
std::string ToText(const RunPlan& plan, bool with_program);
std::string ToJson(const RunPlan& plan, bool with_program);

}  // namespace delink
