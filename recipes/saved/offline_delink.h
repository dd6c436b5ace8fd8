// `delink delink`: a checkpoint with fewer links, or more blocks. Where links
// are cut alone the function of the model does not change by a bit; training
// goes on from it as if the run itself had switched there.
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

namespace delink {

struct OfflineDelinkOptions {
  std::string checkpoint;  // what FindCheckpoint takes
  std::string out;         // must not exist
  // Where not given, as the recipe's next stage says; where there is none,
  // `none`, `scale`, the blocks that are there, and `copy`. A depth visits
  // blocks as that stage does, or else the checkpoint's.
  std::optional<ShareSpec> share;
  std::optional<StatePolicy> state;
  std::optional<int64_t> depth;
  std::optional<GrowPolicy> grow;
};

struct OfflineDelinkReport {
  std::string from, to;  // step folders
  // The stage before, and the one that the new checkpoint belongs to: the first
  // later stage of the recipe with this very sharing and these blocks, else the
  // same.
  std::string stage_before, stage_after;
  StatePolicy state = StatePolicy::kScale;
  int64_t depth_before = 0, depth_after = 0;
  GrowPolicy grow = GrowPolicy::kCopy;  // where it grew
  SharingReport before, after;
};

// Reads and writes a piece of a tensor at a time, and holds no more in memory,
// however large the model. Writes options.out/step-NNNNNNNN. InvalidArgument,
// and nothing written: a share that does not fit, or would join what the
// checkpoint has apart; a depth that is not the model's, or leaves a block; the
// state policy `calibrated`, which needs gradients.
absl::StatusOr<OfflineDelinkReport> OfflineDelink(
    const OfflineDelinkOptions& options, const ModelList& models);

// For people, lines.
std::string ToString(const OfflineDelinkReport& report);

}  // namespace delink
