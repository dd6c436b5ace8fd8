// A stage of a run as its ranks would see it, without any of their memory: what
// plans are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

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
  // As it is once it has taken the layout of another stage
  // (StageRun::TakeLayout), with which a plan is shared likewise.
  static absl::StatusOr<std::unique_ptr<ImaginedStage>> CreateLaidOut(
      const RunEnv& env, size_t index, size_t layout, int rank);
  // The same on another rank.
  absl::StatusOr<std::unique_ptr<ImaginedStage>> On(int rank) const;

  StageRun& stage() { return *stage_; }
  const StageRun& stage() const { return *stage_; }
  const RunEnv& env() const { return env_; }

 private:
  ImaginedStage(const RunEnv& env, int rank);

  std::unique_ptr<Device> device_;
  ImaginedRanks world_, network_;
  std::shared_ptr<const JointPlan> plan_;  // unless `env` brought one
  RunEnv env_;
  size_t layout_ = 0;  // the stage that it is laid out as
  std::unique_ptr<StageRun> stage_;
};

// Bytes of weights, gradients and state by where they are at home.
struct PlaneBytes {
  int64_t device = 0, host = 0;
};
PlaneBytes PlaneBytesOf(const ParamStore& store);
// Of each tier the larger.
PlaneBytes Most(const PlaneBytes& a, const PlaneBytes& b);

// Of a rank what its StageRun and its store would say.
struct RankMemory {
  int rank = 0;
  MemoryAccount account;
  PlaneBytes planes;
};
RankMemory MemoryOf(const ImaginedStage& imagined);
// By rank, of the ranks of the stage of the pipeline that `imagined` is of.
// They differ where their shares of the state do, and where what is cut is not
// cut evenly; none but `imagined` has an executor made.
absl::StatusOr<std::vector<RankMemory>> MemoryOfRanks(
    const ImaginedStage& imagined);
// Of all ranks, where `first` is on rank 0.
absl::StatusOr<std::vector<RankMemory>> MemoryByRank(
    const ImaginedStage& first);
// Of planes alone, of all ranks of a layout, which `store` has.
absl::StatusOr<std::vector<PlaneBytes>> PlanesByRank(const ParamStore& store);

// Of the ranks of a stage of the pipeline the first of those that hold most on
// their device, and the most that one of them has of the host.
struct HeaviestRank {
  int rank = 0;
  int64_t host = 0;
};

// Of `first`, the stage on rank 0, those ranks of each stage of its pipeline,
// in turn, that hold most.
using VisitHeaviest =
    std::function<absl::Status(ImaginedStage& of, const HeaviestRank& rank)>;
absl::Status ForEachHeaviest(ImaginedStage& first, const VisitHeaviest& visit);

}  // namespace delink
