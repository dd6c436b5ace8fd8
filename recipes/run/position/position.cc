#include "recipes/run/position/position.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"

namespace delink {
namespace {

SwitchPolicy PolicyOf(const Recipe& recipe, size_t stage,
                      SwitchHistory history) {
  const Until& until = recipe.stages.at(stage).until;
  return SwitchPolicy({.plateau = until.plateau.value_or(0),
                       .gradient = until.gradient.value_or(0),
                       .window = until.window},
                      std::move(history));
}

// Three numbers each.
std::vector<double> Flat(const std::vector<SwitchHistory::Probe>& probes) {
  std::vector<double> flat;
  for (const SwitchHistory::Probe& probe : probes) {
    flat.insert(flat.end(),
                {static_cast<double>(probe.step), probe.together, probe.apart});
  }
  return flat;
}

std::vector<SwitchHistory::Probe> ProbesOf(const std::vector<double>& flat) {
  std::vector<SwitchHistory::Probe> probes;
  for (size_t i = 0; i + 2 < flat.size(); i += 3) {
    probes.push_back({.step = static_cast<int64_t>(flat[i]),
                      .together = flat[i + 1],
                      .apart = flat[i + 2]});
  }
  return probes;
}

}  // namespace

RunPosition::RunPosition(const Recipe& recipe, Blend blend)
    : recipe_(&recipe),
      blend_(std::move(blend)),
      policy_(PolicyOf(recipe, 0, {})),
      skips_(recipe.optimizer.skip, {}) {}

RunPosition::RunPosition(const Recipe& recipe, const SavedRun& saved,
                         Blend blend)
    : recipe_(&recipe),
      step_(saved.step),
      samples_(saved.samples),
      stage_(static_cast<size_t>(saved.stage_index)),
      begin_{.step = saved.stage_begin_step,
             .samples = saved.stage_begin_samples},
      blend_(std::move(blend)),
      policy_(PolicyOf(recipe, stage_,
                       {.losses = saved.stage_losses,
                        .probes = ProbesOf(saved.stage_probes)})),
      best_(saved.validation),
      skips_(recipe.optimizer.skip, saved.skipped) {}

void RunPosition::Advance(std::optional<double> loss) {
  ++step_;
  samples_ += recipe_->Batch(stage_);
  blend_.Skip(recipe_->Batch(stage_));
  if (loss.has_value()) policy_.AddLoss(*loss);
}

void RunPosition::AddProbe(const Agreement& agreement) {
  policy_.AddProbe(step_, agreement);
}

bool RunPosition::AddValidation(double loss) {
  const bool last = stage_ + 1 == recipe_->stages.size();
  return best_.Add(step_, loss, last, recipe_->run.stop_after.delta);
}

void RunPosition::EnterNextStage() {
  DELINK_CHECK_LT(stage_ + 1, recipe_->stages.size());
  ++stage_;
  begin_ = {.step = step_, .samples = samples_};
  blend_.SetWeights(recipe_->Weights(stage_));
  policy_ = PolicyOf(*recipe_, stage_, {});
  best_.CountAnew();
  skips_.BeginStage();
}

absl::StatusOr<std::string> RunPosition::StageOver(Communicator& comm) const {
  if (stage_ + 1 == recipe_->stages.size()) return std::string();
  if (step_ >= recipe_->StageEnd(stage_, begin_)) {
    return std::string("as the recipe says");
  }
  if (!HasBatch(stage_) && !DataOver()) {
    return std::string("since its sources have ended");
  }
  if (!policy_.asked()) return std::string();
  return BroadcastString(comm, policy_.Due().value_or(""), 0);
}

bool RunPosition::HasBatch(size_t stage) const {
  Blend blend = blend_;
  if (stage != stage_) blend.SetWeights(recipe_->Weights(stage));
  return blend.Has(recipe_->Batch(stage));
}

bool RunPosition::DataOver() const {
  // A stage that is over leaves the rest of its sources unused.
  const bool over = stage_ + 1 < recipe_->stages.size() &&
                    step_ >= recipe_->StageEnd(stage_, begin_);
  for (size_t i = stage_ + (over ? 1 : 0); i < recipe_->stages.size(); ++i) {
    if (HasBatch(i)) return false;
  }
  return true;
}

std::string RunPosition::EndsEarly() const {
  if (DataOver()) {
    return "all sources have ended, or have less than a batch left (repeat = "
           "false)";
  }
  return best_.Over(recipe_->run.stop_after);
}

SavedRun RunPosition::Saved() const {
  SavedRun saved;
  saved.step = step_;
  saved.tokens = tokens();
  saved.samples = samples_;
  saved.stage = recipe_->stages[stage_].name;
  saved.stage_index = static_cast<int64_t>(stage_);
  saved.stage_begin_step = begin_.step;
  saved.stage_begin_samples = begin_.samples;
  saved.stage_losses = policy_.history().losses;
  saved.stage_probes = Flat(policy_.history().probes);
  saved.validation = best_.saved();
  saved.skipped = skips_.Saved();
  return saved;
}

}  // namespace delink
