// The position of a run: everything that its next step depends on, except the
// parameters. Part of every checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "data/loader/blend.h"
#include "framework/comm/communicator.h"
#include "framework/sharing/switch_policy.h"
#include "recipes/run/position/best_validation.h"
#include "recipes/run/position/saved_run.h"
#include "recipes/run/position/skip_watch.h"
#include "recipes/schema/recipe.h"

namespace delink {

class RunPosition {
 public:
  // At the start of the run.
  RunPosition(const Recipe& recipe, Blend blend);
  // At a checkpoint. The recipe's windows may have changed since.
  RunPosition(const Recipe& recipe, const SavedRun& saved, Blend blend);

  int64_t step() const { return step_; }        // optimizer steps done
  int64_t samples() const { return samples_; }  // global samples consumed
  int64_t tokens() const { return samples_ * recipe_->data.seq; }
  size_t stage() const { return stage_; }
  const StageMark& begin() const { return begin_; }  // of the stage
  // The position in each source, with the stage's weights.
  const Blend& blend() const { return blend_; }

  // A step has been done with this loss, or skipped.
  void Advance(std::optional<double> loss);
  void AddProbe(const Agreement& agreement);
  // `loss` is the same on all ranks. Returns whether it is the lowest so far.
  bool AddValidation(double loss);
  const BestValidation& best() const { return best_; }
  SkipWatch& skips() { return skips_; }
  // The next stage begins here.
  void EnterNextStage();

  // Why the stage is over, in words; empty: it continues. The last stage with
  // data continues until the run ends. Collective if it depends on
  // measurements; then rank 0 decides.
  absl::StatusOr<std::string> StageOver(Communicator& comm) const;

  // Whether all sources have ended: neither this stage nor a later one has a
  // batch left.
  bool DataOver() const;
  // Why the run ends before its last step, in words; empty: it continues.
  std::string EndsEarly() const;

  // For a checkpoint. Lacks the time and what only `Sources` know.
  SavedRun Saved() const;

 private:
  bool HasBatch(size_t stage) const;

  const Recipe* recipe_;
  int64_t step_ = 0;
  int64_t samples_ = 0;
  size_t stage_ = 0;
  StageMark begin_;
  Blend blend_;
  SwitchPolicy policy_;
  BestValidation best_;
  SkipWatch skips_;
};

}  // namespace delink
