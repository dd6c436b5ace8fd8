// `delink delink`: a checkpoint with fewer links, more blocks, or experts in
// place of MLPs. If only links are cut, the model's function is bit-identical.
// Training continues from it as if the run itself had switched there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "framework/sharing/depth_policy.h"
#include "framework/sharing/report.h"
#include "framework/sharing/share_spec.h"
#include "framework/sharing/state_policy.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/upcycled_model.h"

namespace delink {

struct OfflineDelinkOptions {
  std::string checkpoint;  // what FindCheckpoint takes
  std::string out;         // must not exist
  // Omitted values are those of the recipe's next stage; without one, `none`,
  // `scale`, the same blocks, and `copy`. A depth uses the `visit` policy of
  // that stage, else that of the checkpoint's stage.
  std::optional<ShareSpec> share;
  std::optional<StatePolicy> state;
  std::optional<int64_t> depth;
  std::optional<GrowPolicy> grow;
  // The MLPs become experts (upcycled_model.h). Then the sharing, the blocks
  // and the stage stay unless `share` or `depth` is given, and the state policy
  // counts an MLP as shared by its experts.
  std::optional<UpcycleOptions> upcycle;
  // Noise of each expert's parameters, in standard deviations of the parameter.
  double noise = 0;
};

struct OfflineDelinkReport {
  std::string from, to;  // step folders
  // The old checkpoint's stage and the new one's: the first later stage of the
  // recipe with exactly this sharing and these blocks, else the same stage.
  std::string stage_before, stage_after;
  StatePolicy state = StatePolicy::kScale;
  int64_t depth_before = 0, depth_after = 0;
  GrowPolicy grow = GrowPolicy::kCopy;  // if it grew
  int64_t experts = 0;                  // of a block; 0: not upcycled
  bool keeps_output = true;             // KeepsOutput of the upcycled model
  double noise = 0;
  SharingReport before, after;
};

// Reads and writes a piece of a tensor at a time and holds no more in memory,
// however large the model. Writes options.out/step-NNNNNNNN. InvalidArgument,
// with nothing written: a share that does not fit or would add links; a depth
// that the model cannot have or that drops a block; the state policy
// `calibrated`, which needs gradients; Upcycle's errors.
absl::StatusOr<OfflineDelinkReport> OfflineDelink(
    const OfflineDelinkOptions& options, const ModelList& models);

// For people, lines.
std::string ToString(const OfflineDelinkReport& report);

}  // namespace delink
