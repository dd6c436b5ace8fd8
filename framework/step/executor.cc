#include "framework/step/executor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/step/agreement.h"
#include "framework/step/executor_state.h"
#include "framework/step/validator.h"

namespace delink {
namespace {

ProgramShape ShapeOf(const ParamStore& store, int32_t micro_batches) {
  ProgramShape shape{.layers = static_cast<int32_t>(store.visited().size()),
                     .slabs = static_cast<int32_t>(store.slabs().size()),
                     .micro_batches = micro_batches,
                     .ranks = store.ranks()};
  for (const int layer : store.visited()) {
    shape.slabs_of_layer.push_back(store.slabs_of_layer(layer));
  }
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const PlacementRow& row = store.placement(static_cast<int>(s));
    shape.gathers.push_back(row.state.sharded && !row.weight.sharded);
  }
  return shape;
}

}  // namespace

Executor::~Executor() = default;

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(
    const Env& env, const Options& options) {
  const Layout& layout = env.store->layout();
  DELINK_CHECK_EQ(layout.mesh().data, layout.ranks())
      << "steps know no other axis than data yet";
  std::unique_ptr<Executor> e(new Executor);
  e->env_ = env;
  e->options_ = options;
  e->binder_ = std::make_unique<Binder>(*env.store);
  const ProgramShape shape = ShapeOf(*env.store, options.micro_batches);
  e->train_ = options.planner(PassKind::kStep, shape);
  DELINK_RETURN_IF_ERROR(AgreeOnProgram(*env.compute, e->train_));
  e->evaluation_ = options.planner(PassKind::kEvaluation, shape);
  DELINK_RETURN_IF_ERROR(ValidateProgram(e->evaluation_));
  e->train_analysis_ = AnalyzeProgram(e->train_);
  e->evaluation_analysis_ = AnalyzeProgram(e->evaluation_);
  e->train_names_ = e->NamesOf(e->train_);
  e->evaluation_names_ = e->NamesOf(e->evaluation_);
  e->layers_ =
      MeasureLayers(*env.model, *env.store, options.batch, env.accumulate);
  e->memory_ = SizeStep(*env.store, e->layers_, options.batch, e->train_,
                        e->train_analysis_, e->evaluation_analysis_);
  if (options.probes) {
    e->memory_.copies = std::max(e->memory_.copies, ProbeBytes(*env.store));
  }
  // An update works where visits do: when they are over.
  e->memory_.workspace =
      std::max(e->memory_.workspace, env.optimizer->ScratchBytes(*env.store));
  if (env.trace != nullptr) e->DescribeProgram(*env.trace);
  e->MakeStreams();
  DELINK_RETURN_IF_ERROR(e->Allocate());
  e->BuildVisits();
  Executor* const self = e.get();
  const bool threads = options.lane_threads && env.compute->size() > 1;
  e->train_lanes_ = std::make_unique<LaneRunner>(
      e->train_, e->train_analysis_, threads, [self](int32_t i, int64_t step) {
        return self->ExecuteTraining(i, step);
      });
  e->evaluation_lanes_ = std::make_unique<LaneRunner>(
      e->evaluation_, e->evaluation_analysis_, false,
      [self](int32_t i, int64_t step) {
        return self->Execute(i, step, self->evaluation_,
                             self->evaluation_analysis_, true);
      });
  return e;
}

int Executor::LayerAt(int32_t place) const {
  return At(env_.store->visited(), place);
}

std::vector<std::string> Executor::NamesOf(const Program& program) const {
  std::vector<std::string> names;
  for (const Instruction& at : program.instructions) {
    names.push_back(ToString(at));
    if (at.layer >= 0) {
      absl::StrAppend(&names.back(), " of ",
                      env_.model->layer_name(LayerAt(at.layer)));
    } else if (at.slab >= 0) {
      absl::StrAppend(&names.back(), " of ", env_.store->slab(at.slab).name);
    }
  }
  return names;
}

double Executor::flops_per_micro_batch() const {
  double flops = 0;
  for (const Instruction& at : train_.instructions) {
    if (at.micro_batch != 0) continue;
    const LayerPlan& layer = At(layers_, at.layer);
    const bool backward = at.op == Op::kBackward;
    if (!backward || (at.flags & kRecompute) != 0) flops += layer.flops;
    if (backward || at.op == Op::kLoss) flops += layer.backward_flops;
  }
  return flops;
}

// Does not wait; whoever calls does, before the batch goes.
void Executor::Load(const HostBatch& batch, int64_t step,
                    const UpdateControl& control) {
  const int64_t sequences = memory_.micro_batches * memory_.batch.micro_batch;
  const int64_t tokens = sequences * memory_.batch.seq;
  DELINK_CHECK_EQ(static_cast<int64_t>(batch.inputs.size()), tokens);
  DELINK_CHECK_EQ(static_cast<int64_t>(batch.targets.size()), tokens);
  DELINK_CHECK_EQ(static_cast<int64_t>(batch.samples.size()), sequences);
  const bool masked = memory_.batch.masked;
  DELINK_CHECK_EQ(static_cast<int64_t>(batch.positions.size()),
                  masked ? tokens : 0);
  Device& device = *env_.device;
  Stream& stream = *compute_stream_;
  loaded_key_ = Fold(Fold(KeyFromSeed(options_.seed), "step"),
                     static_cast<uint64_t>(step));
  loaded_control_ = control;
  device.CopyFromHost(stream, records_->inputs, batch.inputs.data(),
                      tokens * 4);
  device.CopyFromHost(stream, records_->targets, batch.targets.data(),
                      tokens * 4);
  device.CopyFromHost(stream, records_->samples, batch.samples.data(),
                      sequences * 8);
  if (masked) {
    device.CopyFromHost(stream, records_->positions, batch.positions.data(),
                        tokens * 4);
  }
  device.CopyFromHost(stream, records_->step_key, &loaded_key_,
                      sizeof(loaded_key_));
  device.CopyFromHost(stream, records_->control, &loaded_control_,
                      sizeof(loaded_control_));
  device.FillZero(stream, records_->loss, sizeof(LossRecord));
}

absl::Status Executor::Begin(const HostBatch& batch, int64_t step, double lr,
                             double skip_above) {
  return BeginStep(batch, step,
                   {.lr = lr,
                    .clip = options_.clip,
                    .clip_value = options_.clip_value,
                    .skip_above = skip_above});
}

StepResult Executor::Finish() {
  const StepResult result = WaitForStep();
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
  // A trace has each instruction of a step once, of the step that updates.
  DELINK_RETURN_IF_ERROR(Drain());
  Trace* const trace = std::exchange(env_.trace, nullptr);
  DELINK_RETURN_IF_ERROR(
      BeginStep(batch, step, {.clip = options_.clip, .hold = 1}));
  StepResult result = WaitForStep();
  DELINK_RETURN_IF_ERROR(Drain());
  env_.trace = trace;
  result.skipped = !std::isfinite(result.loss + result.grad_norm);
  return result;
}

absl::Status Executor::BeginStep(const HostBatch& batch, int64_t step,
                                 const UpdateControl& before) {
  step_range_.emplace(absl::StrCat("step ", step).c_str());
  DeviceTimes* const times = TimesOf(step);
  if (times != nullptr) times->BeginStep(step, *compute_stream_);
  Load(batch, step, before);
  if (times != nullptr) times->Loaded(*compute_stream_);
  begun_ = step;
  return train_lanes_->RunStep(step);
}

// All that there is to know of a step is known before its updates: while the
// device is at work on them the host goes on to the next step.
void Executor::SendResult() {
  env_.device->CopyToHost(*compute_stream_, &result_control_, records_->control,
                          sizeof(result_control_));
  env_.device->CopyToHost(*compute_stream_, &result_votes_,
                          records_->sums + memory_.sums - 1,
                          sizeof(result_votes_));
  compute_stream_->Record(*records_->result);
  DeviceTimes* const times = TimesOf(begun_);
  if (times != nullptr) times->Result(*compute_stream_);
}

// The one place of a step where the host waits for the device.
StepResult Executor::WaitForStep() {
  DeviceTimes* const times = TimesOf(begun_);
  if (times != nullptr) times->EndStep(*compute_stream_);
  compute_stream_->SynchronizeWith(*records_->result);
  if (times != nullptr) times->Waited();
  step_range_.reset();
  const UpdateControl& control = result_control_;
  return StepResult{.loss = control.loss_sum / control.tokens,
                    .tokens = static_cast<int64_t>(control.tokens),
                    .grad_norm = control.norm,
                    .skipped = control.skip != 0,
                    .votes = result_votes_};
}

absl::StatusOr<LossRecord> Executor::Evaluate(const HostBatch& batch) {
  DELINK_RETURN_IF_ERROR(Drain());
  Load(batch, 0, {});
  DELINK_RETURN_IF_ERROR(evaluation_lanes_->RunStep(0));
  LossRecord record;
  env_.device->CopyToHost(*compute_stream_, &record, records_->loss,
                          sizeof(record));
  compute_stream_->Synchronize();
  double sums[2] = {record.loss_sum, static_cast<double>(record.tokens)};
  DELINK_RETURN_IF_ERROR(
      env_.compute->AllReduce(sums, 2, DType::kF64, ReduceOp::kSum)->Wait());
  return LossRecord{.loss_sum = sums[0],
                    .tokens = static_cast<int64_t>(sums[1])};
}

absl::Status Executor::Drain() {
  DELINK_RETURN_IF_ERROR(train_lanes_->Drain());
  compute_stream_->Synchronize();
  network_stream_->Synchronize();
  if (times_ != nullptr) times_->Settle();
  return absl::OkStatus();
}

absl::Status Executor::Execute(int32_t index, int64_t step,
                               const Program& program, const Analysis& analysis,
                               bool evaluating) {
  const auto i = static_cast<size_t>(index);
  const Instruction& at = program.instructions[i];
  const std::string& name = (evaluating ? evaluation_names_ : train_names_)[i];
  if (env_.watch != nullptr) env_.watch->Begin(at.lane, step, name);
  const ProfileRange range(name.c_str());
  Stream& stream =
      at.lane == Lane::kNetwork ? *network_stream_ : *compute_stream_;
  for (const Dependency& d : analysis.dependencies[i]) {
    if (!evaluating) {
      stream.Wait(*At(records_->events, d.instruction));
    }
  }
  DeviceTimes* const times = evaluating ? nullptr : TimesOf(step);
  if (times != nullptr) times->Begin(index, step, stream);
  absl::Status status;
  switch (at.op) {
    case Op::kForward:
      Forward(at, analysis,
              evaluating                     ? Phase::kEval
              : (at.flags & kRecompute) != 0 ? Phase::kForward
                                             : Phase::kRecord);
      break;
    case Op::kLoss:
      Loss(at, analysis, analysis.written[i], evaluating);
      break;
    case Op::kBackward:
      BackwardVisit(at, analysis.written[i]);
      break;
    case Op::kReduce:
      status = Reduce(at.slab);
      break;
    case Op::kNorm:
      status = Norm();
      SendResult();
      break;
    case Op::kUpdate:
      env_.optimizer->set_scratch(workspace_.data());
      env_.optimizer->Update(stream, *env_.store, at.slab, records_->control,
                             At(env_.store->updates(), at.slab) + 1);
      break;
    case Op::kFetch:
      status = Gather(at.slab);
      break;
    default:
      DELINK_CHECK(false) << "no such instruction on one stage: "
                          << ToString(at);
  }
  if (times != nullptr) times->End(index, step, stream);
  if (!evaluating) stream.Record(*records_->events[i]);
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(ToString(at), ": ", status.message()));
  }
  return status;
}

absl::Status Executor::Reduce(int slab) {
  Communicator& comm = *env_.network;
  if (comm.size() == 1) return absl::OkStatus();
  ParamStore& store = *env_.store;
  const auto s = static_cast<size_t>(slab);
  const int64_t count = store.slabs()[s].ShardElements(comm.size());
  const DType dtype = store.dtype(Plane::kGradient);
  void* const whole = store.at(slab, Plane::kGradient, 0);
  DELINK_RETURN_IF_ERROR(network_exchange_->ReduceScatter(
      whole, copies_.data(), count, dtype, ReduceOp::kSum));
  void* const own =
      static_cast<char*>(whole) + comm.rank() * count * SizeOf(dtype);
  env_.device->Copy(*network_stream_, own, copies_.data(),
                    count * SizeOf(dtype));
  // Whoever updates the whole slab needs all of its gradient.
  const PlacementRow& row = store.placement(slab);
  if (row.state.sharded && row.owner == kNoOwner) return absl::OkStatus();
  return network_exchange_->AllGather(whole, count, dtype);
}

absl::Status Executor::Gather(int slab) {
  ParamStore& store = *env_.store;
  const auto s = static_cast<size_t>(slab);
  const Slab& of = store.slabs()[s];
  void* const whole = store.at(slab, Plane::kWeight, 0);
  const DType dtype = store.dtype(Plane::kWeight);
  const int owner = store.placement(slab).owner;
  if (owner != kNoOwner) {
    return network_exchange_->Broadcast(whole, of.elements, dtype, owner);
  }
  return network_exchange_->AllGather(
      whole, of.ShardElements(env_.network->size()), dtype);
}

absl::Status Executor::Norm() {
  Stream& stream = *compute_stream_;
  double* sums = records_->sums;
  for (size_t s = 0; s < env_.store->slabs().size(); ++s) {
    const int slab = static_cast<int>(s);
    SumSquares(stream, *env_.store, slab, env_.store->owned(slab), sums);
    sums += env_.store->slabs()[s].blocks();
  }
  // The loss and the tokens behind them travel in the same exchange.
  WriteTail(stream, *env_.device, &records_->loss->loss_sum,
            &records_->loss->tokens,
            env_.watch != nullptr ? env_.watch->Vote() : 0, sums);
  if (env_.compute->size() > 1) {
    DELINK_RETURN_IF_ERROR(compute_exchange_->AllReduce(
        records_->sums, memory_.sums, DType::kF64, ReduceOp::kSum));
  }
  FinishNorm(stream, *env_.device, records_->sums, memory_.sums - kTailSums,
             records_->control);
  return absl::OkStatus();
}

}  // namespace delink
