#include "recipes/run/observers/validation.h"

#include <algorithm>

#include "framework/base/status_macros.h"
#include "recipes/run/stage/batches.h"

namespace delink {
namespace {

absl::StatusOr<LossRecord> LossOn(const Loader& loader, int64_t sequences,
                                  StageRun& stage) {
  const int64_t end = std::min(loader.samples_per_epoch(), sequences);
  LossRecord sum;
  for (int64_t first = 0; first < end; first += stage.cut().global()) {
    DELINK_ASSIGN_OR_RETURN(const HostBatch batch,
                            ReadBatchUntil(loader, stage.cut(), first, end));
    DELINK_ASSIGN_OR_RETURN(const LossRecord record,
                            stage.executor().Evaluate(batch));
    sum.loss_sum += record.loss_sum;
    sum.tokens += record.tokens;
  }
  return sum;
}

}  // namespace

absl::StatusOr<Validation> Validate(const Sources& sources, int64_t sequences,
                                    StageRun& stage, Communicator& comm) {
  LossRecord all;
  std::vector<double> losses = {0};  // over all, then by source
  std::vector<std::string> names;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!sources.validation(i).has_value()) continue;
    DELINK_ASSIGN_OR_RETURN(const LossRecord record,
                            LossOn(*sources.validation(i), sequences, stage));
    all.loss_sum += record.loss_sum;
    all.tokens += record.tokens;
    losses.push_back(record.loss_sum / static_cast<double>(record.tokens));
    names.push_back(sources.name(i));
  }
  losses[0] = all.loss_sum / static_cast<double>(all.tokens);
  DELINK_RETURN_IF_ERROR(comm.Broadcast(losses.data(),
                                        static_cast<int64_t>(losses.size()),
                                        DType::kF64, 0)
                             ->Wait());
  Validation validation{.loss = losses[0], .of = {}};
  if (sources.size() == 1) return validation;
  for (size_t i = 0; i < names.size(); ++i) {
    validation.of.emplace_back(names[i], losses[i + 1]);
  }
  return validation;
}

absl::StatusOr<bool> Validator::MaybeValidate(StageRun& stage, RunPosition& at,
                                              bool force) {
  const Recipe& recipe = run_.recipe();
  const int64_t every = recipe.run.validate_every;
  const bool due = at.step() == recipe.schedule.steps ||
                   (every > 0 && at.step() % every == 0) || at.DataOver();
  if (!due && !force) return false;
  DELINK_RETURN_IF_ERROR(recorder_.Flush());
  DELINK_ASSIGN_OR_RETURN(
      const Validation validation,
      Validate(run_.sources(), run_.inputs().validation_sequences(), stage,
               run_.world().comm()));
  DELINK_RETURN_IF_ERROR(
      recorder_.Tell(RunValidated{.at = recorder_.Now(at),
                                  .loss = validation.loss,
                                  .loss_of = validation.of}));
  return due && at.AddValidation(validation.loss);
}

}  // namespace delink
