#include "recipes/run/setup.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "layers/kernels/find_kernels.h"
#include "parallel/watch/signals.h"
#include "recipes/record/environment.h"
#include "recipes/record/run_folder.h"
#include "recipes/run/check_kinds.h"
#include "recipes/run/check_memory.h"
#include "recipes/run/choose_device.h"
#include "recipes/run/init_from.h"
#include "recipes/run/make_optimizer.h"
#include "recipes/run/prepare.h"
#include "recipes/schema/recipe_io.h"

namespace delink {
namespace {

std::string DefaultOut(const std::string& recipe) {
  return JoinPath("runs", std::filesystem::path(recipe).stem().string());
}

// Whether this rank's text is rank 0's; the first line that differs.
absl::Status SameLines(const std::string& mine, const std::string& first) {
  const std::vector<std::string> here = absl::StrSplit(mine, '\n');
  const std::vector<std::string> there = absl::StrSplit(first, '\n');
  for (size_t i = 0; i < std::max(here.size(), there.size()); ++i) {
    const std::string a = i < here.size() ? here[i] : "";
    const std::string b = i < there.size() ? there[i] : "";
    if (a == b) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("this rank has '", a, "' where rank 0 has '", b,
                     "'; give all ranks the same recipe, options and corpus"));
  }
  return absl::OkStatus();
}

// Ranks that read different recipes or corpora would train apart without a
// word. Where the files lie may differ from machine to machine.
absl::Status AgreeOnInputs(Communicator& comm, Recipe recipe,
                           const Sources& sources) {
  recipe.data.train = recipe.data.validation = "";
  for (DataSource& source : recipe.data.sources) {
    source.train = source.validation = "";
  }
  const std::string mine =
      absl::StrCat(ToToml(recipe), "corpus ", sources.digests());
  DELINK_ASSIGN_OR_RETURN(const std::string first,
                          BroadcastString(comm, mine, 0));
  return AgreeOnStatus(comm, SameLines(mine, first));
}

void WarnOfSlowPrecision(const Recipe& recipe) {
  if (recipe.run.dtype() != DType::kBF16 || FastBf16()) return;
  DELINK_LOG(kWarning) << "run.precision is \"bf16\", for which this processor "
                          "or this build has no instructions: the run is as "
                          "good as elsewhere, but no faster than in fp32, "
                          "maybe slower";
}

// cuDNN does not mask by document (layers/kernels/cuda/attention_scratch.h).
void WarnOfSlowAttention(const Recipe& recipe) {
  if (recipe.run.dtype() != DType::kBF16 || !recipe.data.masked()) return;
  DELINK_LOG(kWarning)
      << "data.documents is \"masked\": attention is not cuDNN's but our own "
         "kernels', which leave out what is masked, but are several times "
         "slower where documents are as long as sequences";
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunSetup>> RunSetup::Create(
    const TrainOptions& options, const ModelList& models, World& world) {
  std::unique_ptr<RunSetup> run(new RunSetup);
  run->world_ = &world;
  Communicator& comm = world.comm();
  // mpirun asks the others to end when a rank has died: not before they have
  // told which.
  std::optional<SignalCatcher> signals;
  if (world.size() > 1) signals.emplace();
  const std::unique_ptr<Watchdog> early = RunWatch::StartEarly(world);
  run->out_ = options.out.empty() ? DefaultOut(options.recipe) : options.out;
  run->threads_ = static_cast<int>(options.threads);
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, run->ReadInputs(options, models)));
  DELINK_ASSIGN_OR_RETURN(
      run->device_,
      ChooseDevice({.device = run->recipe_.run.device,
                    .ranks_per_gpu = run->recipe_.run.ranks_per_gpu},
                   world));
  DELINK_RETURN_IF_ERROR(AgreeOnInputs(comm, run->recipe_, *run->sources_));
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, run->TakeFolder()));
  DELINK_RETURN_IF_ERROR(run->FindResume(options, models));
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, run->MakeModel(models)));
  DELINK_RETURN_IF_ERROR(run->FindInit(options));
  // A run that does not fit leaves no folder.
  const std::string slow =
      PrepareKernels(*run->device_, run->recipe_.run.dtype());
  DELINK_RETURN_IF_ERROR(Barrier(comm));
  DELINK_RETURN_IF_ERROR(
      AgreeOnStatus(comm, CheckMemory(run->env_, run->Position().stage(),
                                      RanksOnDevice(*run->device_, world))));
  absl::Status status;
  if (run->first() && !options.trace.empty()) {
    status = TraceFile::Check(options.trace);
  }
  if (run->first() && status.ok()) {
    const bool resume = options.resume;
    status = RunFolder::Prepare(run->out_, options.overwrite
                                               ? RunFolder::Mode::kOverwrite
                                           : resume ? RunFolder::Mode::kResume
                                                    : RunFolder::Mode::kFresh);
    if (status.ok()) {
      status = WriteFileAtomically(RunFolder::Recipe(run->out_),
                                   ToToml(run->recipe_));
    }
    if (status.ok() && run->resumed_) status = run->LeaveCourse();
    if (status.ok() && !SetLogFile(RunFolder::Log(run->out_))) {
      status = absl::PermissionDeniedError(
          absl::StrCat(RunFolder::Log(run->out_), ": cannot be written"));
    }
  }
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, status));
  if (run->first() && !slow.empty()) DELINK_LOG(kWarning) << slow;
  if (run->first() && !IsCuda(run->device_->kind())) {
    WarnOfSlowPrecision(run->recipe_);
  }
  if (run->first() && IsCuda(run->device_->kind())) {
    WarnOfSlowAttention(run->recipe_);
  }
  if (run->first() && run->resumed_ && !options.init.empty()) {
    DELINK_LOG(kInfo) << "--init " << options.init
                      << " is not used: the run goes on from where it was";
  }
  DELINK_ASSIGN_OR_RETURN(run->watch_,
                          RunWatch::Start(world, RunFolder::Ranks(run->out_),
                                          run->recipe_.run.watchdog));
  run->env_.watch = run->watch_.get();
  if (!options.trace.empty()) {
    DELINK_ASSIGN_OR_RETURN(
        run->trace_, TraceFile::Create(options.trace, options.trace_steps,
                                       run->Position().step(), world));
    if (run->trace_ != nullptr) run->env_.trace = run->trace_->trace();
  }
  return run;
}

absl::Status RunSetup::ReadInputs(const TrainOptions& options,
                                  const ModelList& models) {
  DELINK_ASSIGN_OR_RETURN(
      const Recipe recipe,
      ReadRecipe(options.recipe, options.sets, KindsOf(models)));
  DELINK_ASSIGN_OR_RETURN(recipe_, CheckWorld(recipe, world_->size()));
  DELINK_ASSIGN_OR_RETURN(sources_, Sources::Open(recipe_));
  DELINK_ASSIGN_OR_RETURN(recipe_, FitVocab(recipe_, sources_->corpus(0)));
  DELINK_ASSIGN_OR_RETURN(blend_, sources_->Place(recipe_.Weights(0), nullptr));
  return absl::OkStatus();
}

absl::Status RunSetup::TakeFolder() {
  if (!first()) return absl::OkStatus();
  DELINK_ASSIGN_OR_RETURN(lock_, RunFolder::Take(out_));
  return absl::OkStatus();
}

// Checkpoints past the one that is resumed from are not this run's any more.
absl::Status RunSetup::LeaveCourse() {
  DELINK_ASSIGN_OR_RETURN(
      const int count,
      SetLaterAside(RunFolder::Checkpoints(out_), resumed_->step));
  if (count > 0) {
    DELINK_LOG(kWarning) << count << " later checkpoint(s) of " << out_
                         << " set aside as *.left";
  }
  if (!recipe_.run.keep_best) return absl::OkStatus();
  const BestValidation best(resumed_->validation);
  DELINK_ASSIGN_OR_RETURN(const bool there,
                          LinkBest(RunFolder::Checkpoints(out_), best.step()));
  if (!there && best.step() >= 0) {
    DELINK_LOG(kWarning) << "the checkpoint of step " << best.step()
                         << ", which validated best, is not there any more";
  }
  return absl::OkStatus();
}

absl::Status RunSetup::FindResume(const TrainOptions& options,
                                  const ModelList& models) {
  if (!options.resume) return absl::OkStatus();
  const bool named = !options.resume_from.empty();
  absl::StatusOr<std::string> found =
      FindCheckpoint(world_->comm(), named ? options.resume_from : out_);
  if (!found.ok()) {
    // A run that was stopped before its first checkpoint starts again.
    if (named || !absl::IsNotFound(found.status())) return found.status();
    if (first()) {
      DELINK_LOG(kWarning) << std::string(found.status().message())
                           << "; starting afresh";
    }
    return absl::OkStatus();
  }
  checkpoint_ = *std::move(found);
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(world_->comm(), CheckResume(models)));
  if (first()) DELINK_LOG(kInfo) << "resuming from " << checkpoint_;
  return absl::OkStatus();
}

absl::Status RunSetup::CheckResume(const ModelList& models) {
  DELINK_ASSIGN_OR_RETURN(const CheckpointHeader header,
                          ReadHeader(checkpoint_));
  DELINK_ASSIGN_OR_RETURN(const SavedRun run,
                          SavedRun::From(checkpoint_, header));
  DELINK_ASSIGN_OR_RETURN(const std::string text,
                          ReadFile(JoinPath(checkpoint_, "recipe.toml")));
  DELINK_ASSIGN_OR_RETURN(
      const Recipe saved,
      ParseRecipe(text, JoinPath(checkpoint_, "recipe.toml"), checkpoint_, {},
                  KindsOf(models)));
  DELINK_RETURN_IF_ERROR(CheckKinds(checkpoint_, header, saved));
  if (header.vocab != recipe_.model->vocab) {
    return absl::InvalidArgumentError(absl::StrCat(
        checkpoint_, ": has a vocabulary of ", header.vocab, ", but ",
        sources_->corpus(0).dir(), " needs ", recipe_.model->vocab,
        "; train on a corpus built with the checkpoint's tokenizer"));
  }
  DELINK_RETURN_IF_ERROR(delink::CheckResume(saved, recipe_));
  int64_t tokens = 0;
  if (__builtin_mul_overflow(run.samples, recipe_.data.seq, &tokens) ||
      tokens != run.tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        checkpoint_, ": has ", run.tokens, " tokens in ", run.samples,
        " samples of ", recipe_.data.seq, "; another program wrote it"));
  }
  const auto stage = static_cast<size_t>(run.stage_index);
  if (stage >= recipe_.stages.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint_, ": is of stage[", stage, "], but the recipe ",
                     "has ", recipe_.stages.size(),
                     " stage(s); give it those that the run has done"));
  }
  absl::StatusOr<Blend> blend = sources_->Place(recipe_.Weights(stage), &run);
  if (!blend.ok()) {
    return absl::Status(
        blend.status().code(),
        absl::StrCat(checkpoint_, ": ", blend.status().message()));
  }
  blend_ = *std::move(blend);
  resumed_ = run;
  CheckValidation();
  return absl::OkStatus();
}

std::string RunSetup::ValidatedOn() const {
  return sources_->ValidatedOn(recipe_.data.validation_batches *
                               recipe_.data.batch);
}

void RunSetup::CheckValidation() {
  const std::string& before = resumed_->validated_on;
  if (before.empty() || before == ValidatedOn()) return;
  if (first() && !resumed_->validation.empty()) {
    DELINK_LOG(kWarning) << "validation is on other data than before: the "
                            "lowest loss and run.stop_after count anew from "
                            "here";
  }
  resumed_->validation.clear();
}

absl::Status RunSetup::FindInit(const TrainOptions& options) {
  // A run that goes on has its weights: the same words start it and restart it.
  if (options.init.empty() || resumed_) return absl::OkStatus();
  DELINK_ASSIGN_OR_RETURN(init_, FindCheckpoint(world_->comm(), options.init));
  return AgreeOnStatus(world_->comm(), CheckInit(options));
}

absl::Status RunSetup::CheckInit(const TrainOptions& options) const {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path inside =
      fs::weakly_canonical(init_, error)
          .lexically_relative(fs::weakly_canonical(out_, error));
  if (options.overwrite && !inside.empty() && *inside.begin() != "..") {
    return absl::InvalidArgumentError(
        absl::StrCat(init_,
                     ": --overwrite would remove it before --init could "
                     "read it; choose another --out"));
  }
  DELINK_ASSIGN_OR_RETURN(const SharingMap sharing, SharingOf(env_, 0));
  return delink::CheckInit(init_, {.registry = &registry_,
                                   .blocks = model_->blocks(),
                                   .sharing = sharing,
                                   .tokenizer = sources_->tokenizer_bytes(),
                                   .corpus = sources_->corpus(0).dir()});
}

absl::Status RunSetup::MakeModel(const ModelList& models) {
  model_ =
      BuildModel(models, Scope(registry_, recipe_.run.dtype()), *recipe_.model);
  DELINK_ASSIGN_OR_RETURN(optimizer_, MakeOptimizer(recipe_, registry_));
  DELINK_ASSIGN_OR_RETURN(network_, world_->comm().Split(0, world_->rank()));
  env_ = {.recipe = &recipe_,
          .device = device_.get(),
          .model = model_.get(),
          .registry = &registry_,
          .optimizer = optimizer_.get(),
          .world = &world_->comm(),
          .network = network_.get(),
          .lane_threads = threads_ > 1};
  // A share that does not fit is found before anything is written.
  return CheckStages(env_);
}

absl::StatusOr<std::unique_ptr<StageRun>> RunSetup::Begin() {
  if (!resumed_) {
    DELINK_ASSIGN_OR_RETURN(std::unique_ptr<StageRun> stage,
                            StageRun::Create(env_, 0));
    if (init_.empty()) {
      stage->store().InitWeights(static_cast<uint64_t>(recipe_.run.seed));
      return stage;
    }
    if (first()) DELINK_LOG(kInfo) << "beginning with the weights of " << init_;
    DELINK_RETURN_IF_ERROR(LoadWeights(world_->comm(), init_, stage->store()));
    return stage;
  }
  DELINK_ASSIGN_OR_RETURN(
      const SharingMap sharing,
      ReadSharing(checkpoint_, registry_, model_->blocks()));
  DELINK_ASSIGN_OR_RETURN(
      std::unique_ptr<StageRun> stage,
      StageRun::Create(env_, static_cast<size_t>(resumed_->stage_index),
                       &sharing));
  DELINK_RETURN_IF_ERROR(
      LoadCheckpoint(world_->comm(), checkpoint_, stage->store()));
  return stage;
}

absl::Status RunSetup::MaybeTrace(StageRun& stage, int64_t step, bool ends) {
  if (trace_ == nullptr) return absl::OkStatus();
  return trace_->OnStep(stage.executor(), step, ends);
}

RunPosition RunSetup::Position() const {
  return resumed_ ? RunPosition(recipe_, *resumed_, *blend_)
                  : RunPosition(recipe_, *blend_);
}

CheckpointHeader RunSetup::Header(const RunPosition& position,
                                  double seconds) const {
  SavedRun run = position.Saved();
  run.validated_on = ValidatedOn();
  run.corpus = sources_->digests();
  run.sources =
      sources_->Counts(position.blend(), resumed_ ? resumed_->Counts()
                                                  : std::vector<SourceCount>());
  run.seconds = seconds;
  return {.step = run.step,
          .model = std::string(recipe_.model->kind()),
          .optimizer = recipe_.optimizer.kind_name(),
          .seed = recipe_.run.seed,
          .vocab = recipe_.model->vocab,
          .program = BuildLine(),
          .values = run.Values()};
}

CheckpointFiles RunSetup::Files() const {
  return {{"recipe.toml", ToToml(recipe_)},
          {"tokenizer", sources_->tokenizer_bytes()}};
}

}  // namespace delink
