// Everything a run needs before its first step: its inputs (inputs.h), its
// beginning (beginning.h), its model and device (prepare.h), its folder
// (prepare_folder.h) and its watch (run_watch.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/launch/launch.h"
#include "parallel/watch/folder_lock.h"
#include "recipes/models/model_list.h"
#include "recipes/record/trace_file.h"
#include "recipes/run/setup/beginning.h"
#include "recipes/run/setup/inputs.h"
#include "recipes/run/setup/prepare.h"
#include "recipes/run/setup/run_watch.h"
#include "recipes/run/setup/train_options.h"
#include "recipes/run/stage/stage_run.h"

namespace delink {

class RunSetup {
 public:
  // Reads and checks everything, and only then changes the run's folder. The
  // folder is locked before it is first read. Collective: every rank returns
  // the same. InvalidArgument: the options or the recipe are wrong.
  static absl::StatusOr<std::unique_ptr<RunSetup>> Create(
      const TrainOptions& options, const ModelList& models, World& world);

  const RunInputs& inputs() const { return *inputs_; }
  const Recipe& recipe() const { return inputs_->recipe; }
  const Sources& sources() const { return inputs_->sources; }
  const Beginning& beginning() const { return *beginning_; }
  const RunEnv& env() const { return env_; }
  const std::string& out() const { return out_; }
  World& world() const { return world_; }
  bool first() const { return world_.rank() == 0; }
  int threads() const { return threads_; }
  RunWatch& watch() const { return *watch_; }
  // For StepCheck, on rank 0, if the user has no trace; else null. It keeps no
  // steps unless it is told to.
  Trace* own_trace() const { return own_trace_.get(); }
  // Call after a step. Writes the trace, if one is due. Collective.
  absl::Status MaybeTrace(StageRun& stage, int64_t step, bool ends);

 private:
  RunSetup(const TrainOptions& options, World& world);
  absl::Status MakeModel(const ModelList& models);
  // Checks that the run fits. Returns a warning if kernels will be slow, else
  // "".
  absl::StatusOr<std::string> CheckDevice();
  void Warn(const TrainOptions& options, const std::string& slow) const;
  absl::Status StartWatching(const TrainOptions& options);

  World& world_;
  std::string out_;
  int threads_ = 1;
  std::unique_ptr<FolderLock> lock_;  // rank 0's; outlives all writers
  std::optional<RunInputs> inputs_;
  std::vector<int> nodes_;  // by rank
  std::unique_ptr<Device> device_;
  std::unique_ptr<SlowBus> bus_;  // optional
  std::optional<Beginning> beginning_;
  std::unique_ptr<RunModel> model_;
  std::unique_ptr<Communicator> network_;
  RunEnv env_;  // of the above
  std::unique_ptr<RunWatch> watch_;
  std::unique_ptr<TraceFile> trace_;  // optional
  std::unique_ptr<Trace> own_trace_;  // optional
};

}  // namespace delink
