// A recipe: everything that determines a run, as plain data.
//
// Read one with ReadRecipe (recipes/schema/recipe_io.h). The meaning, range and
// default of every key are in docs/recipe.md, generated from
// recipes/schema/describe.cc. Only the methods here compute values that follow
// from others. Steps count from 0; "step n" means that n optimizer steps are
// done.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/module/mesh.h"
#include "framework/optim/schedule.h"
#include "framework/sharing/depth_policy.h"
#include "framework/sharing/share_spec.h"
#include "framework/sharing/state_policy.h"
#include "framework/step/program/instruction.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/master.h"
#include "offload/plan/offload_rules.h"
#include "recipes/schema/data_config.h"
#include "recipes/schema/model_config.h"
#include "recipes/schema/optimizer_config.h"

namespace delink {

// A number of steps (integer), or a fraction of the run's steps (float).
using Span = std::variant<int64_t, double>;
int64_t SpanSteps(const Span& span, int64_t steps);

struct ScheduleConfig {
  Schedule::Kind kind = Schedule::Kind::kWsd;
  int64_t steps = 0;         // of the whole run
  Span warmup = int64_t{0};  // steps from 0 to the peak
  Span decay = 0.2;          // wsd only: the last stretch
  double final_ratio = 0.1;  // rate at the end over the peak; not constant

  int64_t warmup_steps() const { return SpanSteps(warmup, steps); }
  int64_t decay_steps() const { return SpanSteps(decay, steps); }
};

// When a stage ends. `fraction`, `tokens` and `steps` give the latest end,
// counted from the start of the run; without them it is the run's end.
// `plateau` and `gradient` can end the stage earlier, by measurements
// (framework/sharing/switch_policy.h).
struct Until {
  std::optional<double> fraction;  // of schedule.steps
  std::optional<int64_t> tokens;
  std::optional<int64_t> steps;
  std::optional<double> plateau;   // nats a window
  std::optional<double> gradient;  // agreement; 1: unrelated
  int64_t window = 100;            // steps

  bool planned() const { return fraction || tokens || steps; }
  bool measured() const { return plateau || gradient; }
};

// The order of work in a pipeline stage (parallel/pipeline).
enum class PipelineSchedule { k1F1B, kInterleaved, kZeroBubble };

// How tokens reach experts on other ranks (layers/ops/expert_exchange.h).
// kAuto: the one of the next two that sends less. kDeduplicated: all-to-all,
// once to each machine.
enum class ExpertDispatch { kAuto, kGather, kAllToAll, kDeduplicated };

// When gradients are reduced: once a step, or after each micro-batch.
enum class GradientReduction { kStep, kMicroBatch };

struct ParallelConfig {
  int64_t data = 0;  // if omitted, 0 until CheckWorld sets it
  // Here and below, 0, nullopt and empty mean omitted until the recipe is
  // complete.
  int64_t tensor = 0, context = 0;
  int64_t expert = 0;  // of the ranks of a pipeline stage
  std::optional<ExpertDispatch> dispatch;
  std::optional<double> expert_room;  // of all-to-all, at first
  std::optional<bool> expert_overlap;
  // Stages of the pipeline, the schedule, and chunks of each stage.
  int64_t pipeline = 0;
  std::optional<PipelineSchedule> schedule;
  int64_t chunks = 0;
  std::vector<int64_t> layers;  // blocks by chunk; empty: cut by cost
  int64_t zero = 0;             // ZeRO stage, 0 to 3
  int64_t shard = 0;            // data ranks that share weights; 0: all
  GradientReduction reduce = GradientReduction::kStep;
  // Sequence parallelism: whether each tensor rank holds its own rows between
  // the tensor-parallel products. No effect on a single tensor rank.
  std::optional<bool> sequence;
  std::vector<Axis> rank_order;  // every axis, the fastest first
  std::optional<bool> tensor_across_nodes;

  int64_t ranks() const { return data * tensor * context * pipeline; }
  // Chunks of all pipeline stages together; 1 without a pipeline, whatever
  // `schedule` and `chunks` are.
  int64_t pieces() const { return pipeline > 1 ? pipeline * chunks : 1; }
};

// What backward recomputes instead of storing it: nothing; norms and
// activations (Tape::OpRecord::remake); these, and each block from its input.
enum class Recompute { kNone, kNormActivation, kBlock };

struct Stage {
  std::string name;
  ShareSpec share;               // every part: none, unless given
  std::optional<int64_t> depth;  // blocks that it visits; none: all
  VisitPolicy visit = VisitPolicy::kFirst;
  std::optional<GrowPolicy> grow;  // if it visits more blocks; none: copy
  Until until;
  // How the switch into the stage converts the optimizer state.
  StatePolicy state = StatePolicy::kScale;
  int64_t calibration_batches = 8;  // of StatePolicy::kCalibrated
  int64_t warmup = 0;     // steps of re-warm-up after the switch into the stage
  double lr_scale = 1.0;  // times the scheduled learning rate
  // Weights of the sources by name, 0 where not named; empty: their own.
  std::map<std::string, double> blend;
  // Overrides of [data] and [run] for this stage; see Recipe's methods.
  std::optional<int64_t> batch;
  std::optional<int64_t> micro_batch;
  std::optional<Recompute> recompute;
  ParallelConfig parallel;
  OffloadRules offload;
};

// Where a stage begins, counted from the start of the run.
struct StageMark {
  int64_t step = 0;     // optimizer steps done
  int64_t samples = 0;  // sequences trained on

  friend bool operator==(const StageMark&, const StageMark&) = default;
};

// Early stopping: the run ends after `validations` validations of its last
// stage in a row, none of which improves the best loss by more than `delta`.
struct StopAfter {
  int64_t validations = 0;  // 0: never
  double delta = 0;         // nats
};

struct RunConfig {
  enum class Device { kAuto, kCpu, kCuda };
  int64_t seed = 1;
  Device device = Device::kAuto;
  int64_t ranks_per_gpu = 1;               // that may share a GPU
  DType precision = DType::kF32;           // of weights and activations
  MasterForm master = MasterForm::kWhole;  // of bf16 weights
  DType gradients = DType::kF32;           // of bf16 weights
  int64_t micro_batch = 0;  // sequences; 0 until CheckWorld has chosen
  Recompute recompute = Recompute::kNormActivation;
  MicroBatchOrder order = MicroBatchOrder::kMicroBatchMajor;
  bool deterministic = true;
  int64_t threads = 0;  // a rank; 0: the machine's cores over its ranks
  int64_t log_every = 10;
  int64_t validate_every = 250;     // steps; 0: only at the end
  int64_t checkpoint_every = 1000;  // steps; 0: only at switches and the end
  int64_t keep = 3;                 // newest checkpoints kept; 0: all
  bool keep_best = false;           // the best-validated checkpoint, too
  StopAfter stop_after;
  int64_t probe_every = 0;   // steps; 0: only where a stage asks
  int64_t norms_every = 10;  // steps; 0: never
  int64_t watchdog = 600;    // seconds; 0: none
  double outlier = 0;        // standard deviations; 0: none
};

class Positions;  // where each key was given

struct Recipe {
  std::shared_ptr<const ModelConfig> model;  // never null once read
  DataConfig data;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  std::vector<Stage> stages;  // never empty once read
  RunConfig run;
  std::shared_ptr<const Positions> positions;  // null: not from a file

  // For a stage: sequences and tokens per optimizer step, and sequences per
  // micro-batch.
  int64_t Batch(size_t stage) const;
  int64_t StepTokens(size_t stage) const { return Batch(stage) * data.seq; }
  int64_t MicroBatch(size_t stage) const;
  // VisitInputs::expert_room: 0 if ranks gather tokens.
  double ExpertRoom(size_t stage) const;
  // Weights of data.Sources() in a stage, in that order; not all zero.
  std::vector<double> Weights(size_t stage) const;
  // What the stage's backward recomputes.
  Recompute RecomputeOf(size_t stage) const;
  // The number of blocks that a stage visits; the blocks, as
  // SharingMap::visited.
  int64_t Depth(size_t stage) const;
  std::vector<int> Visited(size_t stage) const;
  // Steps between two probes of the gradient's agreement; 0: none.
  int64_t ProbeEvery(size_t stage) const;

  // The step at which a stage that begins at `begin` ends at the latest.
  int64_t StageEnd(size_t stage, const StageMark& begin) const;
  // Where stages begin and end when none ends early. `stage` may be one past
  // the last: the end of the run.
  StageMark PlannedBegin(size_t stage) const;
  int64_t PlannedEnd(size_t stage) const {
    return PlannedBegin(stage + 1).step;
  }
  int64_t PlannedTokens() const {
    return PlannedBegin(stages.size()).samples * data.seq;
  }

  // Micro-batches that each rank accumulates in one step of a stage; needs
  // CheckWorld.
  int64_t Accumulation(size_t stage) const;

  // The recipe with this vocabulary in its model.
  Recipe WithVocab(int64_t vocab) const;
};

// InvalidArgument about `subject`, with the position of `key`.
absl::Status ErrorAt(const Recipe& recipe, std::string_view key,
                     std::string_view subject, std::string_view message);

// The mesh of a stage's ranks. The recipe is fitted (CheckWorld).
Mesh MeshOf(const ParallelConfig& parallel);
// Whether two stages of the same number of ranks have the same mesh.
bool SameMesh(const ParallelConfig& a, const ParallelConfig& b);

// An error if a batch is not a multiple of data x micro_batch, as far as these
// are given.
absl::Status CheckBatch(const Recipe& recipe);

// The recipe fitted to a number of ranks. An omitted parallel.data becomes the
// number of ranks left over. An omitted run.micro_batch becomes the largest
// divisor of batch / data, at most 8, that leaves a pipeline enough
// micro-batches, and an interleaved pipeline a multiple of its ranks. An error
// points at the key that does not fit and suggests a fix, for started ranks or
// for a plan (`planned`). Stages before `first` are over: their layouts stay as
// they are, whether they fit or not, and an omitted parallel.data becomes 1.
absl::StatusOr<Recipe> CheckWorld(const Recipe& recipe, int64_t world_size,
                                  bool planned = false, size_t first = 0);

}  // namespace delink
