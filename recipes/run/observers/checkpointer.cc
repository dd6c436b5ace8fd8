#include "recipes/run/observers/checkpointer.h"

#include <cstdint>
#include <string>

#include "framework/base/status_macros.h"
#include "recipes/record/environment.h"
#include "recipes/record/run_folder.h"
#include "recipes/run/position/saved_run.h"
#include "recipes/schema/recipe_io.h"

namespace delink {

absl::Status Checkpointer::MaybeSave(StageRun& stage, const RunPosition& at,
                                     bool force) {
  const RunConfig& config = run_.recipe().run;
  const int64_t every = config.checkpoint_every;
  if (!force && (every == 0 || at.step() % every != 0)) return absl::OkStatus();
  DELINK_RETURN_IF_ERROR(recorder_.Flush());
  run_.watch().Begin(Lane::kCompute, at.step(), "saving a checkpoint");
  DELINK_RETURN_IF_ERROR(stage.executor().Drain());
  DELINK_ASSIGN_OR_RETURN(
      const std::string path,
      WriteCheckpoint(run_.world().comm(), RunFolder::Checkpoints(run_.out()),
                      HeaderAt(at), stage.store(), Files(), config.keep,
                      config.keep_best ? at.best().step() : -1));
  return recorder_.Tell(CheckpointSaved{.at = recorder_.Now(at), .path = path});
}

CheckpointHeader Checkpointer::HeaderAt(const RunPosition& at) const {
  const Recipe& recipe = run_.recipe();
  SavedRun run = at.Saved();
  run.validated_on = run_.inputs().ValidatedOn();
  run.corpus = run_.sources().digests();
  run.sources = run_.sources().Counts(at.blend(), run_.beginning().counts());
  run.seconds = recorder_.Seconds();
  run.flops = recorder_.Flops();
  return {.step = run.step,
          .model = std::string(recipe.model->kind()),
          .optimizer = recipe.optimizer.kind_name(),
          .seed = recipe.run.seed,
          .vocab = recipe.model->vocab,
          .program = BuildLine(),
          .values = run.Values()};
}

CheckpointFiles Checkpointer::Files() const {
  return {{"recipe.toml", ToToml(run_.recipe())},
          {"tokenizer", run_.sources().tokenizer_bytes()}};
}

}  // namespace delink
