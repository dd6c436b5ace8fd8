#include "recipes/schema/check_depth.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/sharing/depth_policy.h"
#include "framework/sharing/share_spec.h"
#include "recipes/schema/consistency.h"

namespace delink::schema {
namespace {

// The sets of a policy that have a block visited by the stage.
int64_t VisitedSets(const Recipe& recipe, size_t stage,
                    const SharePolicy& policy) {
  const int64_t layers = recipe.model->layers;
  if (recipe.Depth(stage) == layers) return ShareSets(policy, layers);
  std::set<int64_t> sets;
  for (const int block : recipe.Visited(stage)) {
    sets.insert(ShareSetOf(policy, layers, block));
  }
  return static_cast<int64_t>(sets.size());
}

bool SharesAny(const Recipe& recipe, size_t stage) {
  const std::vector<std::string> parts = recipe.model->parts();
  return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
    const SharePolicy policy = recipe.stages[stage].share.For(part);
    return VisitedSets(recipe, stage, policy) < recipe.Depth(stage);
  });
}

}  // namespace

void CheckDepth(Section& document, const Recipe& recipe, size_t stage) {
  const int64_t layers = recipe.model->layers;
  if (recipe.Depth(stage) > layers) {
    document.Error(StageKey(stage, "depth"),
                   absl::StrFormat("%d is more than model.layers %d",
                                   recipe.Depth(stage), layers));
    return;
  }
  for (const std::string& part : recipe.model->parts()) {
    const SharePolicy policy = recipe.stages[stage].share.For(part);
    const int64_t sets = ShareSets(policy, layers);
    const int64_t visited = VisitedSets(recipe, stage, policy);
    if (sets == layers || visited == sets) continue;
    document.Error(
        StageKey(stage, "share"),
        absl::StrFormat("%s \"%s\" has %d sets, but the stage visits blocks of "
                        "only %d of them (%s); give it fewer sets, or a depth "
                        "and visit that reach them all",
                        part, ToString(policy), sets, visited,
                        absl::StrJoin(recipe.Visited(stage), ",")));
    break;
  }
  if (recipe.stages[stage].until.gradient && !SharesAny(recipe, stage)) {
    document.Error(StageKey(stage, "until.gradient"),
                   "nothing is shared in this stage, so no gradients can "
                   "agree; leave the key out");
  }
}

void CheckGrowth(Section& document, const Recipe& recipe, size_t stage) {
  const Stage& now = recipe.stages[stage];
  if (stage == 0) {
    if (now.grow) {
      document.Error(StageKey(stage, "grow"),
                     "the first stage begins with initial weights, so no "
                     "blocks are added; leave the key out");
    }
    return;
  }
  const int64_t depth = recipe.Depth(stage);
  if (depth < recipe.Depth(stage - 1)) {
    document.Error(
        StageKey(stage, "depth"),
        absl::StrFormat("%d is fewer than the %d blocks that stage[%d] visits; "
                        "a later stage must visit at least as many",
                        depth, recipe.Depth(stage - 1), stage - 1));
    return;
  }
  const std::vector<int> blocks = recipe.Visited(stage);
  for (const int block : recipe.Visited(stage - 1)) {
    if (blocks.empty() ||
        std::binary_search(blocks.begin(), blocks.end(), block)) {
      continue;
    }
    document.Error(
        StageKey(stage, now.visit == recipe.stages[stage - 1].visit ? "depth"
                                                                    : "visit"),
        absl::StrFormat("the stage visits blocks %s, but not block %d, which "
                        "stage[%d] visits; \"even\" keeps all if the depth is "
                        "a multiple of the previous depth",
                        absl::StrJoin(blocks, ","), block, stage - 1));
    return;
  }
  const bool grows = depth > recipe.Depth(stage - 1);
  if (now.grow && !grows) {
    document.Error(
        StageKey(stage, "grow"),
        absl::StrFormat("stage[%d] visits all %d blocks that this one does, so "
                        "no blocks are added; leave the key out",
                        stage - 1, depth));
  }
  if (grows && now.state == StatePolicy::kCalibrated) {
    document.Error(
        StageKey(stage, "state"),
        "\"calibrated\" measures each block's share of a shared gradient, and "
        "new blocks have none; if the depth grows, use \"scale\", \"copy\" or "
        "\"reset\"");
  }
}

}  // namespace delink::schema
