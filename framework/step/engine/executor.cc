#include "framework/step/engine/executor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "framework/step/engine/engine_state.h"
#include "framework/step/plan/layout_shape.h"
#include "framework/step/plan/recompute.h"
#include "framework/step/program/shape_table.h"
#include "framework/step/proof/agreement.h"

namespace delink {
namespace {

std::vector<std::string> NamesOf(const Program& program,
                                 const Sequential& model,
                                 const ParamStore& store) {
  const Layout& layout = store.layout();
  std::vector<std::string> names;
  for (const Instruction& at : program.instructions) {
    names.push_back(ToString(at));
    if (at.layer >= 0) {
      absl::StrAppend(&names.back(), " of ",
                      model.layer_name(At(layout.visited(), at.layer)));
    } else if (at.slab >= 0) {
      const int local = layout.LocalSlabOf(at.slab, store.rank());
      absl::StrAppend(&names.back(), " of ",
                      At(layout.local_slabs(), local).slab.name);
    }
  }
  return names;
}

// Makes the plan, unless there is a shared one. A collective if it does.
absl::StatusOr<std::shared_ptr<const JointPlan>> PlanTogether(
    Communicator& comm, const Executor::Options& options,
    const ProgramShape& shape, const std::vector<PassKind>& kinds) {
  if (options.shared_plan != nullptr && *options.shared_plan != nullptr) {
    return *options.shared_plan;
  }
  absl::StatusOr<JointPlan> plan = JointPlan::Create(
      WithRecompute(options.planner, options.recompute), shape, kinds);
  DELINK_RETURN_IF_ERROR(AgreeOnPlan(comm, plan));
  auto shared = std::make_shared<const JointPlan>(*std::move(plan));
  if (options.shared_plan != nullptr) *options.shared_plan = shared;
  return shared;
}

// For the programs of all stages, with the FLOPs of whole layers.
struct MicroBatchFlops {
  double model = 0, recompute = 0;
};
MicroBatchFlops FlopsPerMicroBatch(const std::vector<Program>& programs,
                                   const std::vector<LayerPlan>& layers) {
  MicroBatchFlops sum;
  for (const Program& program : programs) {
    for (const Instruction& at : program.instructions) {
      if (at.micro_batch != 0) continue;
      const VisitFlops flops = FlopsOf(At(layers, at.layer), at);
      sum.model += flops.forward + flops.backward;
      sum.recompute += flops.recompute;
    }
  }
  return sum;
}

// Why the engine cannot run the instruction; empty: it can. An operation has
// one stream and one communicator.
std::string LaneError(const Instruction& at, const ShapeTable& table) {
  if (at.op == Op::kSave) return "it does not do that";
  if (at.op == Op::kRelease) return "";  // nothing is done
  const Lane lane = table.LaneOf(at);
  if (at.lane == lane) return "";
  return absl::StrCat("it does that in the ", ToString(lane),
                      " lane, not in the ", ToString(at.lane), " lane");
}

// Checks that a valid program has the requested shape, and that the engine can
// run it in turn with others. Between passes all weights are whole.
absl::Status CheckRuns(const Program& program, const ProgramShape& asked) {
  ProgramShape shape = asked;
  if (program.kind == PassKind::kProbe) {
    shape.micro_batches = program.shape.micro_batches;
  }
  if (program.shape != shape || shape.micro_batches > asked.micro_batches) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program of ", ToString(program.kind),
                     " is of another shape than was asked for"));
  }
  const ShapeTable table(shape);
  std::vector<bool> updated(static_cast<size_t>(shape.slabs));
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& at = program.instructions[i];
    std::string error = LaneError(at, table);
    if (at.op == Op::kUpdate) updated[static_cast<size_t>(at.slab)] = true;
    if (at.op == Op::kGather && !updated[static_cast<size_t>(at.slab)]) {
      error = "the passes before it leave the weights whole";
    }
    if (error.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the engine cannot run ", ToString(program.kind),
                     ": instruction ", i, ", ", ToString(at), ": ", error));
  }
  return absl::OkStatus();
}

// Ranks that update a slab together along the tensor axis exchange parts in the
// compute lane, so the host cannot update it.
absl::Status CheckHostUpdates(const Layout& layout, const ProgramShape& shape) {
  for (int32_t s = 0; s < shape.slabs; ++s) {
    if (!HostUpdates(shape, s) || shape.update_exchanges.empty()) continue;
    if (At(shape.update_exchanges, s).empty()) continue;
    const int first = At(layout.program_slabs(), s).first;
    return absl::InvalidArgumentError(absl::StrCat(
        "the host cannot update ", At(layout.local_slabs(), first).slab.name,
        ", of which tensor ranks exchange parts for it: leave its update to "
        "the device (stage.offload.update)"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Executor::TakePass(Program program, const ProgramShape& shape) {
  DELINK_RETURN_IF_ERROR(
      AgreeOnStatus(*env_.compute, CheckRuns(program, shape)));
  Pass& pass = passes_[program.kind];
  pass.names = NamesOf(program, *env_.model, *env_.store);
  pass.analysis = AnalyzeProgram(program);
  pass.program = std::move(program);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(
    const Env& env, const Options& options) {
  std::unique_ptr<Executor> e(new Executor(env, options));
  DELINK_RETURN_IF_ERROR(e->Prepare());
  return e;
}

absl::Status Executor::Prepare() {
  const Layout& layout = env_.store->layout();
  std::vector<LayerPlan> layers =
      MeasureLayers(*env_.model, *env_.store, options_.batch, env_.accumulate,
                    options_.measured);
  ProgramShape shape = ShapeOf(layout, options_.micro_batches, options_.ahead,
                               MayBeLate(*env_.optimizer));
  shape.slot_class = SlotClasses(layers, options_.recompute);
  if (VisitsTogether(shape)) {
    for (const LayerPlan& layer : layers) {
      shape.exchanges.push_back(layer.exchanges);
    }
  }
  shape.update_exchanges = UpdateExchangesOf(
      layout, *env_.optimizer, StatisticsOf(env_.store->options().dtype));
  shape.late_updates = LateUpdatesOf(shape, *env_.optimizer);
  DELINK_RETURN_IF_ERROR(
      AgreeOnStatus(*env_.compute, CheckHostUpdates(layout, shape)));
  std::vector<PassKind> kinds = {PassKind::kStep, PassKind::kGradients,
                                 PassKind::kEvaluation, PassKind::kDiagnosis};
  if (options_.probes) kinds.push_back(PassKind::kProbe);
  DELINK_ASSIGN_OR_RETURN(const std::shared_ptr<const JointPlan> plan,
                          PlanTogether(*env_.compute, options_, shape, kinds));
  const int stage = layout.mesh().PlaceOf(env_.store->rank())[Axis::kPipeline];
  for (const PassKind kind : kinds) {
    DELINK_RETURN_IF_ERROR(TakePass(At(plan->Of(kind), stage), shape));
  }
  // Ranks that share a visit may do more work together than one alone: several
  // may have the same keys and values, or unequal numbers of them.
  const bool alone = !VisitsTogether(shape);
  const MicroBatchFlops flops = FlopsPerMicroBatch(
      plan->Of(PassKind::kStep),
      alone ? layers
            : MeasureWork(*env_.model, *env_.store, options_.batch,
                          env_.accumulate, options_.measured));
  model_flops_per_micro_batch_ = flops.model;
  flops_per_micro_batch_ = flops.model + flops.recompute;
  memory_ = MemoryOn(*env_.store, layers);
  DELINK_ASSIGN_OR_RETURN(
      engine_,
      Engine::Create(
          env_, {.seed = options_.seed, .lane_threads = options_.lane_threads},
          std::move(layers), memory_, passes_));
  return absl::OkStatus();
}

absl::Status Executor::MakeRoom(double lost) {
  DELINK_RETURN_IF_ERROR(Drain());
  // A share times their number is all that there is; with overlap each half of
  // a rank's experts has one.
  const BatchShape& batch = options_.batch;
  if (batch.expert_room >=
      program().shape.expert * (batch.expert_overlap ? 2 : 1)) {
    return absl::InternalError(absl::StrCat(
        lost, " choices of experts found no room, though there is room for ",
        options_.batch.expert_room, " times the mean on each of ",
        program().shape.expert, " ranks"));
  }
  options_.batch.expert_room *= 2;
  if (env_.compute->rank() == 0) {
    DELINK_LOG(kWarning) << lost
                         << " choices of experts found no room on their ranks; "
                            "there is room for "
                         << options_.batch.expert_room
                         << " times the mean from now on";
  }
  options_.shared_plan = nullptr;
  const std::vector<double> sums = engine_->SumsOnHost();
  engine_.reset();
  env_.device->Trim();
  const absl::Status made = Prepare();
  if (made.ok()) {
    engine_->PutSums(sums);  // GradientNorms are the last step's
    return made;
  }
  return absl::Status(
      made.code(),
      absl::StrCat("room for ", options_.batch.expert_room,
                   " times the mean share of the choices of experts "
                   "(parallel.expert_room), which this batch needs: ",
                   made.message()));
}

absl::Status Executor::Repeat(double lost) {
  DELINK_RETURN_IF_ERROR(MakeRoom(lost));
  return BeginPass(begun_.kind, *begun_.batch, begun_.step, begun_.control);
}

absl::Status Executor::RunToSum(PassKind kind, const HostBatch& batch,
                                int64_t step) {
  DELINK_RETURN_IF_ERROR(BeginPass(kind, batch, step, {}));
  while (engine_->lost() > 0) {
    DELINK_RETURN_IF_ERROR(Repeat(engine_->lost()));
  }
  return absl::OkStatus();
}

StepMemory Executor::MemoryOn(const ParamStore& store,
                              const std::vector<LayerPlan>& layers) const {
  StepMemory memory = SizeStep(store, layers, options_.batch, passes_);
  const int64_t scratch = env_.optimizer->ScratchBytes(store);
  // Updates use the workspace of visits, when these are over.
  memory.workspace = std::max(memory.workspace, scratch);
  if (!program().shape.host_updates.empty()) memory.host_scratch = scratch;
  return memory;
}

absl::Status Executor::BeginPass(PassKind kind, const HostBatch& batch,
                                 int64_t step, const UpdateControl& control) {
  waited_before_ = engine_->waited();
  begun_ = {.kind = kind, .batch = &batch, .step = step, .control = control};
  return engine_->Run(passes_.at(kind), batch, step, control);
}

absl::Status Executor::Begin(const HostBatch& batch, int64_t step, double lr,
                             double skip_above) {
  step_range_.emplace(absl::StrCat("step ", step).c_str());
  return BeginPass(PassKind::kStep, batch, step,
                   {.lr = lr,
                    .clip = options_.clip,
                    .clip_value = options_.clip_value,
                    .skip_above = skip_above});
}

absl::StatusOr<StepResult> Executor::WaitForStep() {
  const Engine::Result* result = &engine_->WaitForResult();
  while (result->control.lost > 0) {
    DELINK_RETURN_IF_ERROR(Repeat(result->control.lost));
    result = &engine_->WaitForResult();
  }
  step_range_.reset();
  const UpdateControl& control = result->control;
  return StepResult{.loss = control.loss_sum / control.tokens,
                    .tokens = static_cast<int64_t>(control.tokens),
                    .grad_norm = control.norm,
                    .skipped = control.skip != 0,
                    .votes = result->votes,
                    .layer_sums = result->layer_sums,
                    .waited = engine_->waited() - waited_before_};
}

absl::StatusOr<StepResult> Executor::Finish() {
  DELINK_ASSIGN_OR_RETURN(StepResult result, WaitForStep());
  if (!result.skipped) {
    for (int64_t& updates : env_.store->updates()) ++updates;
  }
  return result;
}

absl::StatusOr<StepResult> Executor::TrainStep(const HostBatch& batch,
                                               int64_t step, double lr) {
  DELINK_RETURN_IF_ERROR(Begin(batch, step, lr));
  return Finish();
}

absl::StatusOr<StepResult> Executor::Gradients(const HostBatch& batch,
                                               int64_t step) {
  DELINK_RETURN_IF_ERROR(
      BeginPass(PassKind::kGradients, batch, step, {.clip = options_.clip}));
  DELINK_ASSIGN_OR_RETURN(StepResult result, WaitForStep());
  DELINK_RETURN_IF_ERROR(Drain());
  return result;
}

absl::StatusOr<LossRecord> Executor::Evaluate(const HostBatch& batch) {
  DELINK_RETURN_IF_ERROR(RunToSum(PassKind::kEvaluation, batch, 0));
  const std::vector<double>& sums = engine_->numbers();
  return LossRecord{.loss_sum = sums[0],
                    .tokens = static_cast<int64_t>(sums[1])};
}

absl::StatusOr<std::vector<SlabAgreement>> Executor::Probe(
    const HostBatch& batch, int64_t step) {
  DELINK_CHECK(options_.probes);
  DELINK_RETURN_IF_ERROR(RunToSum(PassKind::kProbe, batch, step));
  const std::vector<int32_t> sharers = SharersOf(program().shape);
  const std::vector<double>& numbers = engine_->numbers();
  std::vector<SlabAgreement> result;
  for (size_t s = 0; s < sharers.size(); ++s) {
    if (sharers[s] < 2) continue;
    const double* const of = &numbers[2 * result.size()];
    result.push_back({.slab = static_cast<int>(s),
                      .sharers = sharers[s],
                      .of = {.together = of[0], .apart = of[1]}});
  }
  return result;
}

absl::StatusOr<std::string> Executor::Diagnose(const HostBatch& batch,
                                               int64_t step) {
  // Sums first: the step's, which the pass does not touch.
  const std::vector<double> sums = engine_->SumsOnHost();
  DELINK_RETURN_IF_ERROR(RunToSum(PassKind::kDiagnosis, batch, step));
  const Layout& layout = env_.store->layout();
  const ProgramShape& shape = program().shape;
  const auto found = static_cast<int64_t>(engine_->numbers().front());
  const int group = shape.tensor * shape.context;
  const auto within = static_cast<int>(found % group);
  const int64_t visit = found / group;
  const auto layer = static_cast<int32_t>(visit % shape.layers);
  const int64_t row = visit / shape.layers;
  const auto data = static_cast<int>(row / shape.micro_batches);
  if (data < shape.ranks / group) {
    MeshPlace place;
    place[Axis::kTensor] = within % shape.tensor;
    place[Axis::kContext] = within / shape.tensor;
    place[Axis::kData] = data;
    place[Axis::kPipeline] = StageOf(shape, layer);
    const int rank = layout.mesh().RankAt(place);
    DELINK_ASSIGN_OR_RETURN(
        const std::string what,
        BroadcastString(*env_.compute, engine_->not_finite(), rank));
    return absl::StrCat("rank ", rank, ": ", what);
  }
  const int slab = FirstNonFiniteSlab(layout, sums);
  if (slab >= 0) {
    return absl::StrCat("the gradient of ", At(layout.slabs(), slab).name,
                        " is not finite");
  }
  return std::string("the loss itself is not finite");
}

std::vector<double> Executor::GradientNorms() const {
  const std::vector<double> sums = engine_->SumsOnHost();
  const double tokens = At(sums, env_.store->layout().cells() + 1);
  std::vector<double> norms = NormsOf(env_.store->layout(), sums);
  for (double& norm : norms) norm /= tokens;
  return norms;
}

}  // namespace delink
