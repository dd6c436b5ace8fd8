// The executor does what a stage asks of its model. Each request is a pass: a
// program that the planner writes, the validator proves and the engine runs
// (docs/step-program.md).
//
// It allocates device memory in Create, and for more room. Pinned host memory
// for exchanges is allocated in the first step that needs it (plan/memory.h).
// One thread drives the executor; the lanes other than compute may have one
// further thread.
//
// If choices of experts find no room on some rank (LossRecord::lost), the
// result of a pass is of no use. All ranks then take twice the room
// (BatchShape::expert_room), plan again and run the pass again on the same
// batch. A step in which some are lost changes nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/device/profile.h"
#include "framework/sharing/agreement.h"
#include "framework/step/engine/engine.h"
#include "framework/step/plan/planner.h"
#include "framework/step/proof/joint_plan.h"

namespace delink {

struct StepResult {
  double loss = 0;  // mean over all counted targets of all ranks, nats
  int64_t tokens = 0;
  double grad_norm = 0;  // before clipping
  bool skipped = false;  // not finite or too large: nothing was updated
  double votes = 0;      // of all ranks; see StepWatch
  // What layers added up over all ranks (Tape::Sums), in the order of places:
  // LayerPlan::sums of each.
  std::vector<double> layer_sums;
  // How long this rank's compute lane waited for exchanges between ranks, as
  // its thread saw it. If the device is asynchronous, this includes waiting for
  // the device.
  WaitedSeconds waited;
};

class Executor {
 public:
  using Env = Engine::Env;
  struct Options {
    BatchShape batch;
    int32_t micro_batches = 1;
    Planner planner;
    // Blocks that recompute in addition to the planner's (recompute.h).
    std::vector<bool> recompute = {};
    int32_t ahead = 1;  // copies of planes (plan/layout_shape.h)
    uint64_t seed = 1;
    double clip = 0, clip_value = 0;  // as UpdateControl's
    bool lane_threads = false;        // as Engine::Options'
    bool probes = false;              // Probe will be called
    // Optional: where the first of several executors of the same shape leaves
    // the plan of all stages, for the others in the same process.
    std::shared_ptr<const JointPlan>* shared_plan = nullptr;
    MeasuredLayers* measured = nullptr;  // optional, of the model
  };

  // Plans, validates, measures and allocates. `store` has gradients and the
  // optimizer's states. A collective of `env.compute`: if programs differ, all
  // ranks get an error. A valid program is refused unless it has the requested
  // shape (a probe may have fewer micro-batches), has every instruction in its
  // lane (LaneOf), has no kSave, and leaves all weights whole for the next pass
  // (each kGather follows its kUpdate).
  static absl::StatusOr<std::unique_ptr<Executor>> Create(
      const Env& env, const Options& options);

  // One optimizer step, number `step` (from 1), at learning rate `lr`: Begin
  // gives it to the device, Finish waits for its result, not for its updates
  // (Drain does). Between them the host is free if the device is asynchronous;
  // the batch must live until Finish, and nothing else may be called here. A
  // gradient norm above `skip_above` (0: no limit) skips the step.
  absl::Status Begin(const HostBatch& batch, int64_t step, double lr,
                     double skip_above = 0);
  absl::StatusOr<StepResult> Finish();
  // Both.
  absl::StatusOr<StepResult> TrainStep(const HostBatch& batch, int64_t step,
                                       double lr);
  // As TrainStep, but updates nothing: leaves reduced gradients in the store.
  absl::StatusOr<StepResult> Gradients(const HostBatch& batch, int64_t step);
  // How far the gradients of the layers that share a slab agree, for each slab
  // that several blocks share: of the batch's first micro-batch on each rank,
  // averaged over the ranks. Changes only the gradient planes; the host waits.
  // Collective. Needs Options::probes.
  absl::StatusOr<std::vector<SlabAgreement>> Probe(const HostBatch& batch,
                                                   int64_t step);
  // Loss sum and counted targets of a batch over all ranks; dropout off,
  // nothing changed.
  absl::StatusOr<LossRecord> Evaluate(const HostBatch& batch);
  // After a skipped step: the first layer or slab with a number that is not
  // finite, and of a layer the rank and token. Collective; runs the batch
  // again.
  absl::StatusOr<std::string> Diagnose(const HostBatch& batch, int64_t step);
  // Of the last step: the norm of each logical slab's gradient over all ranks,
  // before clipping. Their squares add up to that of StepResult::grad_norm.
  std::vector<double> GradientNorms() const;
  // The norm of each logical slab's parameters as they are now. Waits for all
  // lanes; changes nothing. Collective.
  absl::StatusOr<std::vector<double>> WeightNorms() {
    return engine_->WeightNorms();
  }
  // Waits for all lanes; must be called before others touch the store.
  absl::Status Drain() { return engine_->Drain(); }

  // Of the optimizer step.
  const Program& program() const { return step_pass().program; }
  const Analysis& analysis() const { return step_pass().analysis; }
  const StepMemory& memory() const { return memory_; }
  MemoryAccount account() const { return AccountOf(*env_.store, memory_); }
  // Memory and work of visits, by layer.
  const std::vector<LayerPlan>& layers() const { return engine_->layers(); }
  // `memory` as it is on another rank of the same pipeline stage, with that
  // rank's `store` and `layers` (MeasureLayers).
  StepMemory MemoryOn(const ParamStore& store,
                      const std::vector<LayerPlan>& layers) const;
  // VisitInputs::expert_room now.
  double expert_room() const { return options_.batch.expert_room; }
  // Memory of stored slots; null if no slot is stored.
  const HostArena* stored() const { return engine_->stored(); }
  // FLOPs of forward and backward of one micro-batch over all stages, including
  // recompute, as if one rank computed all: the same for every layout.
  double flops_per_micro_batch() const { return flops_per_micro_batch_; }
  // The same without recompute.
  double model_flops_per_micro_batch() const {
    return model_flops_per_micro_batch_;
  }

 private:
  Executor(const Env& env, const Options& options)
      : env_(env), options_(options) {}
  const Pass& step_pass() const { return passes_.at(PassKind::kStep); }
  // What Create does. Again, after the engine is gone, if options_ changed.
  absl::Status Prepare();
  // Twice the room for choices of experts.
  absl::Status MakeRoom(double lost);
  // Runs the last pass again, with more room.
  absl::Status Repeat(double lost);
  // A pass with a kSum.
  absl::Status RunToSum(PassKind kind, const HostBatch& batch, int64_t step);
  // Of a valid plan.
  absl::Status TakePass(Program program, const ProgramShape& shape);
  absl::Status BeginPass(PassKind kind, const HostBatch& batch, int64_t step,
                         const UpdateControl& control);
  absl::StatusOr<StepResult> WaitForStep();

  Env env_;
  Options options_;
  Passes passes_;
  StepMemory memory_;
  double flops_per_micro_batch_ = 0, model_flops_per_micro_batch_ = 0;
  std::unique_ptr<Engine> engine_;
  // The last pass.
  struct Begun {
    PassKind kind = PassKind::kStep;
    const HostBatch* batch = nullptr;
    int64_t step = 0;
    UpdateControl control;
  } begun_;
  WaitedSeconds waited_before_;  // before the pass under way
  std::optional<ProfileRange> step_range_;
};

}  // namespace delink
