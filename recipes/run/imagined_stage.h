// A stage of a run as its ranks would see it, without any of their memory: what
// plans are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/device/backend.h"
#include "recipes/run/imagined_ranks.h"
#include "recipes/run/stage_run.h"

namespace delink {

// A stage of a recipe as one of its ranks sees it, on a device of its own that
// allocates nothing.
class ImaginedStage {
 public:
  // `env` says how many ranks there are and what kind of device they have. One
  // that is another's env() has the plan of its executor, which is then not
  // made again, and is of the same stage of the recipe.
  static absl::StatusOr<std::unique_ptr<ImaginedStage>> Create(
      const RunEnv& env, size_t index, int rank);
  StageRun& stage() { return *stage_; }
  const StageRun& stage() const { return *stage_; }
  const RunEnv& env() const { return env_; }

 private:
  ImaginedStage(const RunEnv& env, int rank);

  std::unique_ptr<Device> device_;
  ImaginedRanks world_, network_;
  std::shared_ptr<const JointPlan> plan_;  // unless `env` brought one
  RunEnv env_;
  std::unique_ptr<StageRun> stage_;
};

// Bytes of weights, gradients and state by where they are at home.
struct PlaneBytes {
  int64_t device = 0, host = 0;
};
PlaneBytes PlaneBytesOf(const ParamStore& store);

// Of the ranks of a stage of the pipeline.
struct HeaviestRank {
  int rank = 0;             // that holds most on its device
  int64_t host = 0;         // bytes: the most that one of them has of the host
  int64_t host_planes = 0;  // and of planes alone
};

// Of `first`, the stage on rank 0, those ranks of each stage of its pipeline,
// in turn, that hold most.
using VisitHeaviest =
    std::function<absl::Status(ImaginedStage& of, const HeaviestRank& rank)>;
absl::Status ForEachHeaviest(ImaginedStage& first, const VisitHeaviest& visit);

}  // namespace delink
