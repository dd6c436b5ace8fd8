#include "recipes/run/setup/beginning.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "recipes/models/upcycling.h"
#include "recipes/record/run_folder.h"
#include "recipes/run/setup/check_kinds.h"
#include "recipes/run/setup/init_from.h"

namespace delink {

absl::StatusOr<Beginning> Beginning::Find(const TrainOptions& options,
                                          const ModelList& models,
                                          const std::string& out,
                                          const RunInputs& inputs,
                                          Communicator& comm) {
  DELINK_ASSIGN_OR_RETURN(
      Blend blend,
      inputs.sources.Place(inputs.recipe.Weights(0), /*saved=*/nullptr));
  Beginning beginning(inputs, std::move(blend));
  if (options.resume) {
    DELINK_RETURN_IF_ERROR(beginning.FindResume(options, models, out, comm));
  }
  return beginning;
}

absl::Status Beginning::FindResume(const TrainOptions& options,
                                   const ModelList& models,
                                   const std::string& out, Communicator& comm) {
  const bool first = comm.rank() == 0;
  const bool named = !options.resume_from.empty();
  absl::StatusOr<std::string> found =
      FindCheckpoint(comm, named ? options.resume_from : out);
  if (!found.ok()) {
    // A run that was stopped before its first checkpoint starts again.
    if (named || !absl::IsNotFound(found.status())) return found.status();
    if (first) {
      DELINK_LOG(kWarning) << std::string(found.status().message())
                           << "; starting afresh";
    }
    return absl::OkStatus();
  }
  checkpoint_ = *std::move(found);
  std::vector<Difference> changes;
  DELINK_RETURN_IF_ERROR(
      AgreeOnStatus(comm, CheckResume(models, first, &changes)));
  if (first) LogResume(changes);
  return absl::OkStatus();
}

void Beginning::LogResume(const std::vector<Difference>& changes) const {
  DELINK_LOG(kInfo) << "resuming from " << checkpoint_;
  const auto text = [](const std::string& toml) {
    return toml.empty() ? std::string("not set") : toml;
  };
  for (const Difference& change : changes) {
    DELINK_LOG(kInfo) << change.key << " was " << text(change.before) << ", is "
                      << text(change.after) << " from step "
                      << resumed_->step + 1 << " on";
  }
}

absl::Status Beginning::CheckResume(const ModelList& models, bool first,
                                    std::vector<Difference>* changes) {
  const Recipe& recipe = inputs_->recipe;
  DELINK_ASSIGN_OR_RETURN(const CheckpointHeader header,
                          ReadHeader(checkpoint_));
  DELINK_ASSIGN_OR_RETURN(const SavedRun run,
                          SavedRun::From(checkpoint_, header));
  if (!run.imported.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        checkpoint_, ": holds only the weights of ", run.imported,
        ", not a run that can be resumed; start a new run with --init ",
        checkpoint_));
  }
  DELINK_ASSIGN_OR_RETURN(const std::string text,
                          ReadFile(JoinPath(checkpoint_, "recipe.toml")));
  DELINK_ASSIGN_OR_RETURN(
      const Recipe saved,
      ParseRecipe(text, JoinPath(checkpoint_, "recipe.toml"), checkpoint_, {},
                  KindsOf(models)));
  DELINK_RETURN_IF_ERROR(CheckKinds(checkpoint_, header, saved));
  if (header.vocab != recipe.model->vocab) {
    return absl::InvalidArgumentError(absl::StrCat(
        checkpoint_, ": has a vocabulary of ", header.vocab, ", but ",
        inputs_->sources.corpus(0).dir(), " needs ", recipe.model->vocab,
        "; train on a corpus built with the checkpoint's tokenizer"));
  }
  DELINK_RETURN_IF_ERROR(delink::CheckResume(saved, recipe));
  *changes = DiffRecipes(saved, recipe);
  int64_t tokens = 0;
  if (__builtin_mul_overflow(run.samples, recipe.data.seq, &tokens) ||
      tokens != run.tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        checkpoint_, ": has ", run.tokens, " tokens in ", run.samples,
        " samples of ", recipe.data.seq, "; another program wrote it"));
  }
  const auto stage = static_cast<size_t>(run.stage_index);
  if (stage >= recipe.stages.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint_, ": was saved in stage[", stage,
                     "], but the recipe has ", recipe.stages.size(),
                     " stage(s); add the stages that the run has completed"));
  }
  absl::StatusOr<Blend> blend =
      inputs_->sources.Place(recipe.Weights(stage), &run);
  if (!blend.ok()) {
    return absl::Status(
        blend.status().code(),
        absl::StrCat(checkpoint_, ": ", blend.status().message()));
  }
  blend_ = *std::move(blend);
  resumed_ = run;
  CheckValidation(first);
  return absl::OkStatus();
}

void Beginning::CheckValidation(bool first) {
  const std::string& before = resumed_->validated_on;
  if (before.empty() || before == inputs_->ValidatedOn()) return;
  if (first && !resumed_->validation.empty()) {
    DELINK_LOG(kWarning)
        << "the validation data has changed: the lowest loss and the count for "
           "run.stop_after restart from here";
  }
  resumed_->validation.clear();
}

absl::Status Beginning::FindInit(const TrainOptions& options,
                                 const ModelList& models,
                                 const std::string& out, const RunEnv& env) {
  // A resumed run has weights already, so one command can start and restart it.
  if (options.init.empty() || resumed_) return absl::OkStatus();
  // Ranks that see different files there agree on the outcome below.
  DELINK_ASSIGN_OR_RETURN(
      const int64_t folders,
      AllReduceScalar(*env.world,
                      int64_t{huggingface::IsModelFolder(options.init)},
                      ReduceOp::kMax));
  if (folders > 0) {
    init_ = options.init;
  } else {
    DELINK_ASSIGN_OR_RETURN(init_, FindCheckpoint(*env.world, options.init));
  }
  absl::Status status = CheckOverwrite(options, out);
  if (status.ok()) {
    status = folders > 0 ? OpenFolder(models, env) : CheckInit(env);
  }
  return AgreeOnStatus(*env.world, status);
}

absl::Status Beginning::CheckOverwrite(const TrainOptions& options,
                                       const std::string& out) const {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path inside =
      fs::weakly_canonical(init_, error)
          .lexically_relative(fs::weakly_canonical(out, error));
  if (options.overwrite && !inside.empty() && *inside.begin() != "..") {
    return absl::InvalidArgumentError(
        absl::StrCat(init_,
                     ": --overwrite would remove it before --init could read "
                     "it; choose another --out"));
  }
  return absl::OkStatus();
}

absl::Status Beginning::CheckInit(const RunEnv& env) {
  DELINK_ASSIGN_OR_RETURN(const SharingMap sharing, SharingOf(env, 0));
  DELINK_ASSIGN_OR_RETURN(
      init_as_,
      delink::CheckInit(init_, {.model = env.recipe->model.get(),
                                .registry = env.registry,
                                .blocks = env.model->blocks(),
                                .sharing = sharing,
                                .tokenizer = inputs_->sources.tokenizer_bytes(),
                                .corpus = inputs_->sources.corpus(0).dir()}));
  return absl::OkStatus();
}

void Beginning::LogInit(const RunEnv& env, bool shares) const {
  DELINK_LOG(kInfo) << "beginning with the weights of " << init_;
  if (folder_ != nullptr && shares) {
    DELINK_LOG(kInfo) << "layers that share weights begin with those of the "
                         "first of them";
  }
  if (init_as_.empty()) return;
  DELINK_LOG(kInfo) << "experts begin as copies of the MLPs";
  if (!KeepsOutput(ConfigAs<MoeConfig>(*env.recipe->model))) {
    DELINK_LOG(kWarning) << "the model computes something else than the "
                            "checkpoint: a token's gates do not add up to 1, "
                            "or model.capacity drops choices";
  }
}

absl::Status Beginning::LoadInit(const RunEnv& env, StageRun& stage) const {
  Communicator& comm = *env.world;
  if (comm.rank() == 0) LogInit(env, stage.shares());
  ParamStore& store = stage.store();
  if (folder_ != nullptr) return folder_->Load(comm, store);
  DELINK_RETURN_IF_ERROR(LoadWeights(comm, init_, store, init_as_));
  for (const LogicalTensor& tensor : store.layout().tensors()) {
    if (!tensor.link.empty() || !init_as_.IsFresh(tensor.name)) continue;
    store.InitTensor(static_cast<uint64_t>(env.recipe->run.seed), tensor,
                     store.layout().SpecOf(tensor).init);
  }
  return absl::OkStatus();
}

absl::Status Beginning::OpenFolder(const ModelList& models, const RunEnv& env) {
  DELINK_ASSIGN_OR_RETURN(
      folder_,
      FolderInit::Open(init_, models,
                       {.recipe = env.recipe,
                        .registry = env.registry,
                        .tokenizer = inputs_->sources.tokenizer_bytes(),
                        .corpus = inputs_->sources.corpus(0).dir(),
                        .rank = env.world->rank(),
                        .ranks = env.world->size()}));
  return absl::OkStatus();
}

RunPosition Beginning::Position() const {
  const Recipe& recipe = inputs_->recipe;
  return resumed_ ? RunPosition(recipe, *resumed_, blend_)
                  : RunPosition(recipe, blend_);
}

std::vector<SourceCount> Beginning::counts() const {
  return resumed_ ? resumed_->Counts() : std::vector<SourceCount>();
}

absl::StatusOr<std::unique_ptr<StageRun>> Beginning::MakeStage(
    const RunEnv& env) const {
  Communicator& comm = *env.world;
  if (!resumed_) {
    DELINK_ASSIGN_OR_RETURN(std::unique_ptr<StageRun> stage,
                            StageRun::Create(env, 0));
    if (init_.empty()) {
      stage->store().InitWeights(static_cast<uint64_t>(env.recipe->run.seed));
      return stage;
    }
    DELINK_RETURN_IF_ERROR(LoadInit(env, *stage));
    return stage;
  }
  DELINK_ASSIGN_OR_RETURN(
      const SharingMap sharing,
      ReadSharing(checkpoint_, *env.registry, env.model->blocks()));
  const auto index = static_cast<size_t>(resumed_->stage_index);
  DELINK_ASSIGN_OR_RETURN(const SharingMap planned, SharingOf(env, index));
  const int blocks = env.model->blocks();
  if (sharing.VisitedOf(blocks) != planned.VisitedOf(blocks)) {
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint_, ": has blocks ",
                     absl::StrJoin(sharing.VisitedOf(blocks), ","),
                     ", but the stage visits ",
                     absl::StrJoin(planned.VisitedOf(blocks), ","),
                     "; use the recipe that the checkpoint was trained with"));
  }
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<StageRun> stage,
                          StageRun::Create(env, index, &sharing));
  DELINK_RETURN_IF_ERROR(LoadCheckpoint(comm, checkpoint_, stage->store()));
  return stage;
}

absl::Status Beginning::SetLaterAside(const std::string& out) const {
  if (!resumed_) return absl::OkStatus();
  const std::string folder = RunFolder::Checkpoints(out);
  DELINK_ASSIGN_OR_RETURN(const int count,
                          delink::SetLaterAside(folder, resumed_->step));
  if (count > 0) {
    DELINK_LOG(kWarning) << count << " later checkpoint(s) of " << out
                         << " renamed to *.left";
  }
  if (!inputs_->recipe.run.keep_best) return absl::OkStatus();
  const BestValidation best(resumed_->validation);
  DELINK_ASSIGN_OR_RETURN(const bool there, LinkBest(folder, best.step()));
  if (!there && best.step() >= 0) {
    DELINK_LOG(kWarning)
        << "the checkpoint of step " << best.step()
        << ", which had the lowest validation loss, no longer exists";
  }
  return absl::OkStatus();
}

}  // namespace delink
