// A stage of a run without its memory, as its ranks would see it. Plans are
// made from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/device/backend.h"
#include "recipes/run/dry_run/imagined_ranks.h"
#include "recipes/run/stage/stage_run.h"

namespace delink {

// A stage of a recipe as one of its ranks sees it. Owns a device that allocates
// nothing.
class ImaginedStage {
 public:
  // `env` gives the number of ranks and their kind of device. It may be the
  // env() of another ImaginedStage of the same stage of the recipe; then the
  // layout and the plan of that one are shared instead of made again.
  static absl::StatusOr<std::unique_ptr<ImaginedStage>> Create(
      const RunEnv& env, size_t index, int rank);
  // The stage after it has taken the layout of stage `layout`
  // (StageRun::TakeLayout). Both are shared in the same way.
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
  SharedByRanks shared_;  // unless `env` brought one
  RunEnv env_;
  size_t layout_ = 0;  // the stage that it is laid out as
  std::unique_ptr<StageRun> stage_;
};

// Bytes of weights, gradients and state that are device- and host-resident.
struct PlaneBytes {
  int64_t device = 0, host = 0;
};
PlaneBytes PlaneBytesOf(const ParamStore& store);
// The larger of both in each tier.
PlaneBytes Most(const PlaneBytes& a, const PlaneBytes& b);

// What a rank's StageRun and store would report.
struct RankMemory {
  int rank = 0;
  MemoryAccount account;
  PlaneBytes planes;
};
RankMemory MemoryOf(const ImaginedStage& imagined);
// By rank, for the ranks of the pipeline stage of `imagined`. They differ if
// their shares of the state differ or if tensors are not cut evenly. Only
// `imagined` has an executor.
absl::StatusOr<std::vector<RankMemory>> MemoryOfRanks(
    const ImaginedStage& imagined);
// The same for all ranks; `first` is on rank 0.
absl::StatusOr<std::vector<RankMemory>> MemoryByRank(
    const ImaginedStage& first);
// Planes alone, for all ranks of the layout of `store`.
absl::StatusOr<std::vector<PlaneBytes>> PlanesByRank(const ParamStore& store);

// `rank`: the first rank of a pipeline stage that holds most on its device.
// `host`: the most host memory that a rank of that stage holds.
struct HeaviestRank {
  int rank = 0;
  int64_t host = 0;
};

// Calls `visit` for the heaviest rank of each pipeline stage in turn. `first`
// is the stage on rank 0.
using VisitHeaviest =
    std::function<absl::Status(ImaginedStage& of, const HeaviestRank& rank)>;
absl::Status ForEachHeaviest(ImaginedStage& first, const VisitHeaviest& visit);

}  // namespace delink
