// A running stage: its parameters, linked as its share says, the executor that
// trains them, and the switch to the next stage.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/sharing/grow.h"
#include "framework/step/engine/executor.h"
#include "offload/plan/find_place.h"
#include "recipes/run/stage/batches.h"
#include "recipes/schema/recipe.h"

namespace delink {

// What the ranks of a stage have in common, made by the first of them, where
// one process imagines several.
struct SharedByRanks {
  std::shared_ptr<const Layout> layout;
  std::shared_ptr<const JointPlan> plan;
};

// What all stages of a run have in common. The objects outlive the stages.
struct RunEnv {
  const Recipe* recipe = nullptr;
  Device* device = nullptr;
  Sequential* model = nullptr;
  const ParamRegistry* registry = nullptr;
  SlabOptimizer* optimizer = nullptr;
  SlabOptimizer* host_optimizer = nullptr;  // the same, for the host's updates
  Communicator* world = nullptr;    // checkpoints, agreement, the compute lane
  Communicator* network = nullptr;  // the same ranks, for the network lane
  std::vector<int> nodes = {};      // by rank; empty: all ranks are on one
  // By stage, what `auto` placed (dry_run/find_homes.h). For stages beyond the
  // end, all planes are on the device.
  std::vector<AutoPlace> homes = {};
  // Plans for budgets take more room for choices of experts than a run begins
  // with (VisitInputs::expert_room): so many times.
  double more_room = 1;
  bool lane_threads = false;
  StepWatch* watch = nullptr;  // optional
  Trace* trace = nullptr;      // optional
  SlowBus* bus = nullptr;      // optional
  // Optional. All stage runs that share it are of one stage and layout.
  SharedByRanks* shared = nullptr;
  // Of the model; copies of this share it.
  std::shared_ptr<MeasuredLayers> measured = std::make_shared<MeasuredLayers>();

  // `nodes`, never empty.
  std::vector<int> NodesOfRanks() const;
};

// Enforces the stage's memory budget (offload.device), if it has one: from its
// creation on, the device allocates no more than that. From TakeLayout on, the
// budget of the next stage applies. A limit stays until the next stage sets its
// own.
class StageRun {
 public:
  // Stage number `index` of the recipe with all parameters zero. If `sharing`
  // (a checkpoint's) is given, it replaces the recipe's.
  static absl::StatusOr<std::unique_ptr<StageRun>> Create(
      const RunEnv& env, size_t index, const SharingMap* sharing = nullptr);

  // The result of Create and TakeLayout(layout), with all parameters zero, but
  // without the memory that both would need at once.
  static absl::StatusOr<std::unique_ptr<StageRun>> CreateLaidOut(
      const RunEnv& env, size_t index, size_t layout);

  // Ends `from` and begins stage `index`. Delinks parameters, initializes newly
  // visited blocks by the stage's growth policy, and converts state by its
  // state policy. While copying, only both sets of planes are held: the old
  // executor is destroyed before the new planes are allocated. If the stage has
  // another mesh, `from` must have taken it first (TakeLayout).
  static absl::StatusOr<std::unique_ptr<StageRun>> Switch(
      const RunEnv& env, std::unique_ptr<StageRun> from, size_t index);

  // Takes over the micro-batches, recompute and placement of activations of
  // stage `index`, and its mesh. If the mesh differs, parameters and state are
  // resharded, bit for bit, as Delink moves them.
  absl::Status TakeLayout(size_t index);

  size_t index() const { return index_; }
  const Stage& stage() const { return env_.recipe->stages[index_]; }
  const Sequential& model() const { return *env_.model; }
  ParamStore& store() { return *store_; }
  const ParamStore& store() const { return *store_; }
  Executor& executor() { return *executor_; }
  const Executor& executor() const { return *executor_; }
  const BatchCut& cut() const { return cut_; }
  MemoryAccount account() const { return executor_->account(); }
  int64_t depth() const { return store_->layout().depth(); }
  // The arrangement of its ranks, in words (nodes.h).
  std::string RanksText() const;
  // Of forward and backward, including recompute.
  double flops_per_token() const;
  // Whether any blocks share.
  bool shares() const;

 private:
  StageRun(const RunEnv& env, size_t index)
      : env_(env), index_(index), mesh_of_(index) {}
  absl::Status MakeStore(const SharingMap& sharing);
  absl::Status MoveStore(size_t layout);
  absl::Status MakeExecutor(size_t layout);

  RunEnv env_;
  size_t index_;
  size_t mesh_of_;   // the stage whose mesh it has
  double room_ = 0;  // that executors before this one took for experts
  BatchCut cut_;
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<Executor> executor_;
};

// Whether StageRun::TakeLayout(to) changes anything of stage `from`.
bool TakesLayout(const Recipe& recipe, size_t from, size_t to);

// The shape of a micro-batch of a stage.
BatchShape BatchShapeOf(const Recipe& recipe, size_t stage);

// The sharing map of a stage, as its recipe says.
absl::StatusOr<SharingMap> SharingOf(const RunEnv& env, size_t stage);

// How a stage grows from the one before it; not for the first.
Growth GrowthInto(const Recipe& recipe, size_t stage);

}  // namespace delink
