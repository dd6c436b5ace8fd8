#include "recipes/run/setup/setup.h"

#include <algorithm>
#include <utility>

#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "layers/kernels/find_kernels.h"
#include "parallel/watch/signals.h"
#include "recipes/record/run_folder.h"
#include "recipes/run/dry_run/check_memory.h"
#include "recipes/run/dry_run/find_homes.h"
#include "recipes/run/dry_run/known_rates.h"
#include "recipes/run/setup/choose_device.h"
#include "recipes/run/setup/prepare_folder.h"
#include "recipes/run/stage/nodes.h"

namespace delink {
namespace {

// This rank's value, if all ranks have one.
template <typename T>
absl::StatusOr<T> IfAllHave(Communicator& comm, absl::StatusOr<T> mine) {
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, mine.status()));
  return mine;
}

bool HasPipeline(const Recipe& recipe) {
  return std::any_of(
      recipe.stages.begin(), recipe.stages.end(),
      [](const Stage& stage) { return stage.parallel.pipeline > 1; });
}

void WarnOfSlowPrecision(const Recipe& recipe) {
  if (recipe.run.precision != DType::kBF16 || FastBf16()) return;
  DELINK_LOG(kWarning) << "run.precision is \"bf16\", for which this processor "
                          "or this build has no instructions: the run is "
                          "correct, but no faster than in fp32, maybe slower";
}

// cuDNN does not mask by document (layers/kernels/cuda/attention_scratch.h).
void WarnOfSlowAttention(const Recipe& recipe) {
  if (recipe.run.precision != DType::kBF16 || !recipe.data.masked()) return;
  DELINK_LOG(kWarning)
      << "data.documents is \"masked\": attention uses Delink's own kernels "
         "instead of cuDNN's; they skip what is masked, but are several times "
         "slower if documents are as long as sequences";
}

}  // namespace

RunSetup::RunSetup(const TrainOptions& options, World& world)
    : world_(world),
      out_(FolderOf(options)),
      threads_(static_cast<int>(options.threads)) {}

absl::StatusOr<std::unique_ptr<RunSetup>> RunSetup::Create(
    const TrainOptions& options, const ModelList& models, World& world) {
  Communicator& comm = world.comm();
  // When a rank dies, mpirun signals the others. They must first report which
  // rank died.
  std::optional<SignalCatcher> signals;
  if (world.size() > 1) signals.emplace();
  const std::unique_ptr<Watchdog> early = RunWatch::StartEarly(world);
  std::unique_ptr<RunSetup> run(new RunSetup(options, world));
  DELINK_ASSIGN_OR_RETURN(
      run->inputs_, IfAllHave(comm, ReadInputs(options, models, world.size())));
  DELINK_ASSIGN_OR_RETURN(run->nodes_, NodesOf(world));
  const RunConfig& config = run->recipe().run;
  DELINK_ASSIGN_OR_RETURN(run->device_,
                          ChooseDevice({.device = config.device,
                                        .ranks_per_gpu = config.ranks_per_gpu},
                                       world));
  DELINK_ASSIGN_OR_RETURN(
      run->bus_, IfAllHave(comm, SlowBusAsAsked(*run->device_, world)));
  DELINK_RETURN_IF_ERROR(AgreeOnInputs(comm, options, run->inputs()));
  absl::StatusOr<std::unique_ptr<FolderLock>> lock(nullptr);
  if (run->first()) lock = RunFolder::Take(run->out_);
  DELINK_ASSIGN_OR_RETURN(run->lock_, IfAllHave(comm, std::move(lock)));
  DELINK_ASSIGN_OR_RETURN(
      run->beginning_,
      Beginning::Find(options, models, run->out_, run->inputs(), comm));
  // A resumed run does not check the layouts of finished stages.
  const size_t first = run->beginning_->Position().stage();
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, run->inputs().FitsFrom(first)));
  DELINK_RETURN_IF_ERROR(
      AgreeOnStatus(comm, CheckNodes(run->recipe(), run->nodes_, first)));
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, run->MakeModel(models)));
  DELINK_ASSIGN_OR_RETURN(run->env_.homes, AgreeOnHomes(run->env_, first));
  DELINK_RETURN_IF_ERROR(
      run->beginning_->FindInit(options, models, run->out_, run->env_));
  // A run that does not fit leaves no folder.
  DELINK_ASSIGN_OR_RETURN(const std::string slow, run->CheckDevice());
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(
      comm, run->first() ? PrepareFolder(options, run->out_, run->recipe(),
                                         run->beginning())
                         : absl::OkStatus()));
  if (run->first()) run->Warn(options, slow);
  DELINK_RETURN_IF_ERROR(run->StartWatching(options));
  return run;
}

absl::Status RunSetup::MakeModel(const ModelList& models) {
  DELINK_ASSIGN_OR_RETURN(
      model_,
      RunModel::Create(recipe(), models, beginning_->Position().stage()));
  DELINK_ASSIGN_OR_RETURN(network_, world_.comm().Split(0, world_.rank()));
  env_ = model_->On(*device_, world_.comm(), *network_);
  env_.nodes = nodes_;
  env_.lane_threads = HasLaneThread(recipe(), threads_);
  env_.bus = bus_.get();
  return absl::OkStatus();
}

absl::StatusOr<std::string> RunSetup::CheckDevice() {
  const std::string slow = PrepareKernels(*device_, recipe().run.precision);
  DELINK_RETURN_IF_ERROR(Barrier(world_.comm()));
  DELINK_RETURN_IF_ERROR(CheckMemory(env_, beginning_->Position().stage(),
                                     RanksOnDevice(*device_, world_),
                                     world_.local()));
  return slow;
}

void RunSetup::Warn(const TrainOptions& options,
                    const std::string& slow) const {
  if (!slow.empty()) DELINK_LOG(kWarning) << slow;
  if (IsCuda(device_->kind())) {
    WarnOfSlowAttention(recipe());
  } else {
    WarnOfSlowPrecision(recipe());
  }
  if (beginning_->resumed() && !options.init.empty()) {
    DELINK_LOG(kInfo)
        << "--init " << options.init
        << " is ignored, because the run resumes from its own checkpoint";
  }
}

absl::Status RunSetup::StartWatching(const TrainOptions& options) {
  DELINK_ASSIGN_OR_RETURN(
      watch_, RunWatch::Start(world_, {.folder = RunFolder::Ranks(out_),
                                       .patience = recipe().run.watchdog,
                                       .pipeline = HasPipeline(recipe())}));
  env_.watch = watch_.get();
  if (options.trace.empty()) {
    if (first() && MeasuredRates(*device_, recipe()).ok()) {
      own_trace_ = std::make_unique<Trace>(0, -1);
      env_.trace = own_trace_.get();
    }
    return absl::OkStatus();
  }
  DELINK_ASSIGN_OR_RETURN(
      trace_, TraceFile::Create(options.trace, options.trace_steps,
                                beginning_->Position().step(), world_));
  if (trace_ != nullptr) env_.trace = trace_->trace();
  return absl::OkStatus();
}

absl::Status RunSetup::MaybeTrace(StageRun& stage, int64_t step, bool ends) {
  if (trace_ == nullptr) return absl::OkStatus();
  return trace_->OnStep(stage.executor(), step, ends);
}

}  // namespace delink
