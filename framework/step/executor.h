// The executor: interprets step programs over a model, its parameters and one
// block of memory that was sized in advance. It owns the order of execution, so
// recompute, accumulation and micro-batch order are data given to it.
//
// It allocates in Create only. One thread drives it; the network lane may have
// a thread of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/comm/device_exchange.h"
#include "framework/device/profile.h"
#include "framework/module/binder.h"
#include "framework/module/sequential.h"
#include "framework/optim/slab_optimizer.h"
#include "framework/sharing/agreement.h"
#include "framework/step/device_times.h"
#include "framework/step/instruction.h"
#include "framework/step/lane_runner.h"
#include "framework/step/memory.h"
#include "framework/step/plan/planner.h"
#include "framework/step/step_watch.h"
#include "framework/step/trace.h"

namespace delink {

// What a step works on, on the host: all micro-batches of this rank.
struct HostBatch {
  std::vector<int32_t> inputs;   // [M, B, T]
  std::vector<int32_t> targets;  // [M, B, T]; -1: not counted
  std::vector<int64_t> samples;  // [M, B] global sample numbers
  // [M, B, T] where BatchShape::masked: the place of each token in its document
  // (layers/kernels/arguments.h); else empty.
  std::vector<int32_t> positions;
};

struct StepResult {
  double loss = 0;  // mean over all counted targets of all ranks, nats
  int64_t tokens = 0;
  double grad_norm = 0;  // before clipping
  bool skipped = false;  // not finite or too large: nothing was updated
  double votes = 0;      // of all ranks; see StepWatch
};

class Executor {
 public:
  struct Options {
    BatchShape batch;
    int32_t micro_batches = 1;
    Planner planner;
    uint64_t seed = 1;
    double clip = 0, clip_value = 0;  // as UpdateControl's
    bool lane_threads = false;        // a thread for the network lane
    bool probes = false;              // Probe will be called
  };
  // Not owned; must outlive the executor. `compute` and `network` are two
  // communicators over the same ranks, so that the lanes do not disturb each
  // other's order.
  struct Env {
    Device* device = nullptr;
    Sequential* model = nullptr;
    ParamStore* store = nullptr;
    SlabOptimizer* optimizer = nullptr;
    Communicator* compute = nullptr;
    Communicator* network = nullptr;
    AccumulateFn accumulate = nullptr;
    StepWatch* watch = nullptr;  // optional
    Trace* trace = nullptr;      // optional; of TrainStep
  };

  // Plans, validates, measures and allocates. `store` has gradients and the
  // optimizer's states. A collective of `env.compute`: ranks whose programs
  // differ are all told so.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(
      const Env& env, const Options& options);
  ~Executor();

  // One optimizer step, number `step` (from 1), at learning rate `lr`: Begin
  // gives it to the device, Finish waits for its result, not for its updates
  // (Drain does). Between them the host is free where the device works by
  // itself; the batch lives until Finish, and nothing else is called here. A
  // gradient norm above `skip_above` (0: none) skips it.
  absl::Status Begin(const HostBatch& batch, int64_t step, double lr,
                     double skip_above = 0);
  StepResult Finish();
  // Both.
  absl::StatusOr<StepResult> TrainStep(const HostBatch& batch, int64_t step,
                                       double lr);
  // As TrainStep, but for the gradients alone: they are in the store, reduced,
  // and nothing is updated.
  absl::StatusOr<StepResult> Gradients(const HostBatch& batch, int64_t step);
  // How far the gradients of the layers that share a slab agree, for each slab
  // that several blocks share: of the batch's first micro-batch on each rank,
  // averaged over the ranks. Nothing but the gradient planes is changed; takes
  // the host's time. Collective. Needs Options::probes.
  absl::StatusOr<std::vector<SlabAgreement>> Probe(const HostBatch& batch,
                                                   int64_t step);
  // Loss sum and counted targets of a batch over all ranks; dropout off,
  // nothing changed.
  absl::StatusOr<LossRecord> Evaluate(const HostBatch& batch);
  // After a step that was skipped: which layer or slab is not finite first, and
  // on which rank. Collective; runs the batch again.
  absl::StatusOr<std::string> Diagnose(const HostBatch& batch, int64_t step);
  // Of the last step: the norm of each slab's gradient over all ranks, before
  // clipping. The squares of all of them add up to that of StepResult.
  std::vector<double> GradientNorms() const;
  // The norm of each slab's parameters as they are now. Waits for all lanes;
  // changes nothing. Collective.
  absl::StatusOr<std::vector<double>> WeightNorms();
  // Waits for all lanes: before anybody else touches the store.
  absl::Status Drain();

  const Program& program() const { return train_; }
  const Analysis& analysis() const { return train_analysis_; }
  const StepMemory& memory() const { return memory_; }
  MemoryAccount account() const { return AccountOf(*env_.store, memory_); }
  // Of forward and backward of one micro-batch, recompute included.
  double flops_per_micro_batch() const;

 private:
  struct Visit;
  struct Records;

  Executor() = default;
  void MakeStreams();
  absl::Status Allocate();
  void BuildVisits();
  int64_t TracedBytes(const Instruction& at) const;
  void DescribeProgram(Trace& trace);
  // Null where the step is not traced, or the device is the host.
  DeviceTimes* TimesOf(int64_t step) const;
  std::vector<std::string> NamesOf(const Program& program) const;
  // Instructions, and what is made for them, count layers by place; the model,
  // the binder and the store by their numbers.
  int LayerAt(int32_t place) const;
  void Load(const HostBatch& batch, int64_t step, const UpdateControl& control);
  absl::Status Execute(int32_t index, int64_t step, const Program& program,
                       const Analysis& analysis, bool evaluating);
  absl::Status ExecuteTraining(int32_t index, int64_t step);
  void Forward(const Instruction& at, const Analysis& analysis, Phase phase);
  void Loss(const Instruction& at, const Analysis& analysis,
            const std::vector<bool>& written, bool evaluating);
  void BackwardVisit(const Instruction& at, const std::vector<bool>& written,
                     const std::vector<void*>* gradients = nullptr);
  absl::Status BeginStep(const HostBatch& batch, int64_t step,
                         const UpdateControl& before);
  void SendResult();
  StepResult WaitForStep();
  double SumSquaresOf(const Slab& slab, const void* gradient);
  // All slabs' block sums of the last step and what travels behind them.
  std::vector<double> SumsOnHost() const;
  uint8_t FlagsOf(int layer) const;
  void ProbeLayer(int layer, const std::vector<int>& sharers,
                  std::vector<bool>& begun, std::vector<Agreement>& found);
  absl::Status Reduce(int slab);
  absl::Status Norm();
  absl::Status Gather(int slab);

  VisitInputs InputsOf(int32_t micro_batch, bool training) const;
  Tensor InputTensor(int32_t layer, int32_t micro_batch,
                     const Analysis& analysis) const;
  Tensor BoundaryTensor(int32_t micro_batch) const;
  // What a visit keeps until its backward.
  void* SavedRegion(const Instruction& at) const;
  void* SlotAddress(int32_t layer, int32_t slot) const;

  Env env_;
  Options options_;
  std::unique_ptr<Binder> binder_;
  std::vector<LayerPlan> layers_;
  Program train_, evaluation_;
  Analysis train_analysis_, evaluation_analysis_;
  // What the watch and the trace are told, by instruction.
  std::vector<std::string> train_names_, evaluation_names_;
  int32_t traced_program_ = 0;
  std::unique_ptr<DeviceTimes> times_;
  int64_t begun_ = 0;  // the step that BeginStep began last
  std::optional<ProfileRange> step_range_;
  StepMemory memory_;
  Buffer slots_, boundaries_, workspace_, copies_, records_buffer_;
  std::unique_ptr<Records> records_;
  std::unique_ptr<Stream> compute_stream_, network_stream_;
  std::unique_ptr<DeviceExchange> compute_exchange_, network_exchange_;
  std::vector<std::vector<std::unique_ptr<Visit>>> visits_;  // layer, m
  std::unique_ptr<LaneRunner> train_lanes_, evaluation_lanes_;
  // Host memory of copies under way; the batch is the caller's.
  RngKey loaded_key_;
  UpdateControl loaded_control_, result_control_;
  double result_votes_ = 0;
};

}  // namespace delink
