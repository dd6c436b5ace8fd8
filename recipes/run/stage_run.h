// A stage at work: its parameters, linked as its share says, and the executor
// that trains them; and the switch to the next stage.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/sharing/grow.h"
#include "framework/step/executor.h"
#include "offload/plan/find_place.h"
#include "recipes/run/batches.h"
#include "recipes/schema/recipe.h"

namespace delink {

// What all stages of a run have in common; outlives them.
struct RunEnv {
  const Recipe* recipe = nullptr;
  Device* device = nullptr;
  Sequential* model = nullptr;
  const ParamRegistry* registry = nullptr;
  SlabOptimizer* optimizer = nullptr;
  SlabOptimizer* host_optimizer = nullptr;  // the same, for the host's updates
  Communicator* world = nullptr;    // checkpoints, agreement, the compute lane
  Communicator* network = nullptr;  // the same ranks, for the network lane
  std::vector<int> nodes = {};      // theirs, by rank; empty: they have one
  // By stage, what its recipe leaves to `auto` (find_homes.h); of those that
  // are not here, all planes are on the device.
  std::vector<AutoPlace> homes = {};
  bool lane_threads = false;
  StepWatch* watch = nullptr;  // optional
  Trace* trace = nullptr;      // optional
  SlowBus* bus = nullptr;      // optional
  // Optional, as the executor's; of stage runs of one stage of the recipe.
  std::shared_ptr<const JointPlan>* shared_plan = nullptr;
};

// From when it is made on its device hands out no more than the stage's budget
// says (offload.device), where it has one, and for the switch, from TakeLayout
// on, than that of the stage to come: what the memory account has within
// budgets the device holds there. The limit stays until the next stage's.
class StageRun {
 public:
  // Stage number `index` of the recipe with all parameters zero. With `sharing`
  // given (a checkpoint's), that instead of the recipe's.
  static absl::StatusOr<std::unique_ptr<StageRun>> Create(
      const RunEnv& env, size_t index, const SharingMap* sharing = nullptr);

  // As Create, then TakeLayout(layout), leave it; all parameters zero, and
  // without the memory that both would take at a time.
  static absl::StatusOr<std::unique_ptr<StageRun>> CreateLaidOut(
      const RunEnv& env, size_t index, size_t layout);

  // Ends `from` and begins stage `index`: parameters are delinked, blocks that
  // were not visited begin as it says, state goes by the stage's policy.
  // Besides both sets of planes nothing is held while copying: the old executor
  // is gone before the new planes come. Where ranks are arranged otherwise,
  // `from` was first laid out so (TakeLayout).
  static absl::StatusOr<std::unique_ptr<StageRun>> Switch(
      const RunEnv& env, std::unique_ptr<StageRun> from, size_t index);

  // From here on with the micro-batches and recompute of stage `index`, with
  // activations where it has them, and over its mesh where that is another: the
  // state then goes over to the ranks that have it there, bit for bit, as
  // Delink moves it.
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
  // How its ranks are arranged (nodes.h).
  std::string RanksText() const;
  // Of forward and backward, recompute included.
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
  size_t mesh_of_;  // the stage whose mesh it is over
  BatchCut cut_;
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<Executor> executor_;
};

// Whether StageRun::TakeLayout(to) changes anything of stage `from`.
bool TakesLayout(const Recipe& recipe, size_t from, size_t to);

// What a visit of a stage works on, as its recipe says.
BatchShape BatchShapeOf(const Recipe& recipe, size_t stage);

// The sharing map of a stage, as its recipe says.
absl::StatusOr<SharingMap> SharingOf(const RunEnv& env, size_t stage);

// How a stage grows out of the one before it; not the first.
Growth GrowthInto(const Recipe& recipe, size_t stage);

}  // namespace delink
