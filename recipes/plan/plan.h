// `delink plan`: what each stage of a recipe would take, without training.
//
// Nothing here computes a size of its own: every stage is made by the code that
// trains it, on a device that allocates nothing, as a rank among imagined ones:
// of each stage of its pipeline as the one that holds most. The memory account
// is the one that `train` prints before its first step. Time is told as FLOPs,
// and as the seconds that these take at the least.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/link.h"
#include "framework/device/backend.h"
#include "framework/step/memory.h"
#include "framework/tensor/dtype.h"
#include "recipes/models/model_list.h"
#include "recipes/plan/offload_plan.h"
#include "recipes/plan/pipeline_plan.h"
#include "recipes/plan/step_trace.h"

namespace delink {

// Of the host, besides what a rank's account says, while planes are at home
// there: at most so much for the program and its libraries, what it reads ahead
// of steps and pieces of what it saves. On the CPU; a GPU's driver takes more.
inline constexpr int64_t kProgramBytes = int64_t{64} << 20;

struct PlanOptions {
  std::string recipe;             // path
  std::vector<std::string> sets;  // "key=value"
  int64_t ranks = 0;              // 0: as the recipe's stages say, or 1
  int64_t ranks_per_node = 0;     // 0: all are on one
  // Of a rank, where the recipe does not say; 0: this process's, divided among
  // the ranks.
  int64_t threads = 0;
  // A trace of a run of the recipe on these ranks, of which stages it has steps
  // of get their TracedTime; empty: none.
  std::string trace;
  Link link;  // over which ranks then exchange everything
  Link bus;   // between homes of planes, each way
};

struct StagePlan {
  std::string name;
  // Steps of the run, when no stage ends early on what it measures.
  int64_t begin = 0, end = 0;
  int64_t tokens = 0;
  int64_t depth = 0;   // blocks that it visits
  int64_t blocks = 0;  // of the model
  bool may_end_early = false;
  std::vector<std::string> sharing;  // a line for each part
  int64_t unique_parameters = 0;     // that exist
  int64_t virtual_parameters = 0;    // that layers see
  Mesh mesh;
  std::string ranks;  // how they are arranged, in words
  // By stage of the pipeline, in each of the rank that holds most.
  PipelinePlan pipeline;
  MemoryAccount account;  // of the one of these that holds most
  // The same by what it is taken for, and in how many blocks.
  std::vector<MemoryLedger::Entry> taken;
  // By rank, the most that it holds at the switch into this stage
  // (switch_memory.h); none for the first one.
  std::vector<int64_t> switch_by_rank;
  int64_t switch_bytes = 0;   // of the rank that has most
  int64_t switch_planes = 0;  // the same of planes alone
  int64_t micro_batch = 0;    // sequences
  int64_t micro_batches = 0;  // that a rank accumulates
  double flops_per_token = 0;
  double flops_per_step = 0;  // of all ranks
  // As PipelineStagePlan's, of the rank that has most of each.
  int64_t sent_bytes = 0;
  int64_t reduced_bytes = 0;
  int64_t gathered_bytes = 0;
  std::optional<TracedTime> traced;
  std::optional<OffloadPlan> offload;  // of a stage that says anything of it

  int64_t steps() const { return end - begin; }
  double flops() const { return flops_per_step * static_cast<double>(steps()); }
};

struct RunPlan {
  std::string recipe;  // path
  std::string model;   // kind
  int64_t vocab = 0;
  int64_t ranks = 1;
  // What a rank would compute with, and its weights' type.
  DeviceKind device = DeviceKind::kCpu;
  int threads = 1;
  DType precision = DType::kF32;
  std::vector<StagePlan> stages;
  // FLOP/s of all ranks at the peak that training is quoted against
  // (recipes/record/run_peak.h). 0: not known; `no_peak` says why, where
  // FindPeak has looked.
  double peak_flops = 0;
  std::string no_peak;

  // The most that a rank's device holds at any time of the run.
  int64_t peak_bytes() const;
  double flops() const;
  // That so many FLOPs take of all ranks at their peak; where it is known.
  double LeastSeconds(double flops) const { return flops / peak_flops; }
};

// Reads the corpus's vocabulary where the recipe has no model.vocab, and
// nothing else of it. Errors are those that `train` gives for the recipe.
absl::StatusOr<RunPlan> PlanRun(const PlanOptions& options,
                                const ModelList& models);

// Sets `peak_flops` as though this machine had all ranks: what is kept of it,
// else what is measured now, as a run does (RankPeak).
void FindPeak(RunPlan& plan);

// Lines for people, with the program where asked for; one JSON object.
std::string ToText(const RunPlan& plan, bool with_program);
std::string ToJson(const RunPlan& plan, bool with_program);

}  // namespace delink
