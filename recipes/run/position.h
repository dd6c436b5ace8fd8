// Where a run is: all that its next step depends on besides the parameters.
// Part of every checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/communicator.h"
#include "framework/sharing/switch_policy.h"
#include "recipes/schema/recipe.h"

namespace delink {

class RunPosition {
 public:
  // At the start of the run.
  explicit RunPosition(const Recipe& recipe);
  // Where a checkpoint left it. The recipe's windows may have changed since.
  RunPosition(const Recipe& recipe, const CheckpointHeader& header);

  int64_t step() const { return step_; }        // optimizer steps done
  int64_t samples() const { return samples_; }  // global samples consumed
  int64_t tokens() const { return samples_ * recipe_->data.seq; }
  size_t stage() const { return stage_; }
  const StageMark& begin() const { return begin_; }  // of the stage

  // A step has been done, with this loss.
  void Advance(double loss);
  void AddProbe(const Agreement& agreement);
  // The next stage begins here.
  void EnterNextStage();

  // Why the stage is over, in words; empty: it goes on. The last one does until
  // the run ends. Collective where it hangs on what was measured: rank 0
  // decides.
  absl::StatusOr<std::string> StageOver(Communicator& comm) const;

  // Writes what of a header is the position.
  void Fill(CheckpointHeader* header) const;

 private:
  const Recipe* recipe_;
  int64_t step_ = 0;
  int64_t samples_ = 0;
  size_t stage_ = 0;
  StageMark begin_;
  SwitchPolicy policy_;
};

}  // namespace delink
