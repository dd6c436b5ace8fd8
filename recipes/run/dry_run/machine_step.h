// The simulated step of a stage on the machine of a file: the joint execution
// of all ranks' programs with the machine's rates and network.
//
// An instruction takes its own seconds (offload/plan/foreseen_step.h), those of
// the rank of its pipeline stage that takes most memory, and then those of its
// exchanges, one after the other (framework/step/time/network_time.h). On a
// slow node its own seconds are more. Exchanges do not overlap computation
// within an instruction, whatever the recipe says. Experts get equal numbers of
// tokens. Lanes of a rank that use its line to its node, or to other nodes,
// take turns: the first that is ready is the first served. So do all lanes of a
// rank on the CPU, if kernels keep all cores of its node busy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/layout.h"
#include "framework/step/time/critical_path.h"
#include "framework/step/time/lane_use.h"
#include "framework/step/time/network_time.h"
#include "recipes/run/dry_run/pipeline_plan.h"
#include "recipes/run/dry_run/planned_machine.h"
#include "recipes/run/dry_run/simulated_trace.h"

namespace delink {

// A heaviest rank: of a pipeline stage.
struct TierBytes {
  int64_t rank = 0;
  int64_t device = 0, host = 0;
};

struct MachineStep {
  double seconds = 0;
  double tokens_per_second = 0;
  // FLOPs of the model in a step, without recomputation, over those that all
  // ranks would do in its time at the rate of the largest products.
  double utilization = 0;
  CriticalPath path;
  std::vector<LaneUse> lanes;    // of rank 0
  std::vector<TierBytes> tiers;  // a kind of rank once
  int64_t steps = 0;
  // A run waits for its checkpoints, which all ranks of a node write to its
  // disk. No seconds: it has none.
  int64_t saves = 0;
  int64_t save_bytes = 0;  // of a node
  double save_seconds = 0;
  // The switch into the stage: a rank receives its weights and state, over its
  // line to other nodes if there are several. Without its evaluations.
  int64_t switch_bytes = 0;
  double switch_seconds = 0;

  double run_seconds() const {
    return static_cast<double>(steps) * seconds +
           static_cast<double>(saves) * save_seconds + switch_seconds;
  }
};

// What a run takes of the machine.
struct MachineUse {
  double days = 0;
  double energy_kwh = 0;  // of its devices; 0: not known
  double cost = 0;        // 0: not known
};
MachineUse UseOf(const PlannedMachine& machine, double seconds);

// Between the ranks of a plan.
Network NetworkOf(const PlannedMachine& planned);

struct SimulatedStage {
  const PipelinePlan& plan;  // with seconds
  const Layout& layout;
  const PlannedMachine& machine;
  const std::vector<int>& nodes;  // by rank
  bool drains = false;            // TimeStep
  int64_t begin = 0;              // steps before
  SimulatedTrace* trace = nullptr;
};
// Sets seconds, path, lanes, tiers and what a save and a switch take;
// `switches`: whether there is a switch.
absl::StatusOr<MachineStep> SimulateStep(const SimulatedStage& stage,
                                         bool switches);

}  // namespace delink
