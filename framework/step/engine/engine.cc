#include "framework/step/engine/engine.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/comm/chain.h"
#include "framework/device/profile.h"
#include "framework/step/engine/context_cut.h"
#include "framework/step/engine/engine_state.h"

namespace delink {
namespace {

// An instruction in which an exchange has failed.
class Failed final : public Pending {
 public:
  explicit Failed(absl::Status status) : status_(std::move(status)) {}

 private:
  absl::StatusOr<bool> Poll() override { return status_; }

  const absl::Status status_;
};

}  // namespace

Engine::~Engine() = default;

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(
    const Env& env, const Options& options, std::vector<LayerPlan> layers,
    const StepMemory& memory, Passes& passes) {
  std::unique_ptr<Engine> e(new Engine);
  e->env_ = env;
  e->options_ = options;
  e->layers_ = std::move(layers);
  e->memory_ = memory;
  e->binder_ = std::make_unique<Binder>(*env.store);
  DELINK_RETURN_IF_ERROR(e->MakeStreams(passes));
  DELINK_RETURN_IF_ERROR(e->Allocate());
  e->BuildVisits(passes.begin()->second.program);
  for (auto& [kind, pass] : passes) {
    e->MakeEvents(pass);
    if (env.trace != nullptr && kind == PassKind::kStep) e->Describe(pass);
  }
  Engine* const self = e.get();
  e->lanes_ = std::make_unique<LaneRunner>(
      options.lane_threads && (env.network->size() > 1 || e->CopiesOverBus()),
      [self](const Pass& pass, int32_t index, int64_t step) {
        return self->Execute(pass, index, step);
      },
      [self](const Pass& pass, int32_t index, int64_t step) {
        self->TellWait(pass, index, step);
      });
  e->visit_groups_->set_wait([lanes = e->lanes_.get()](Pending& posted) {
    return lanes->WaitWithin(posted);
  });
  if (env.trace != nullptr) {
    e->visit_groups_->set_tell([self](const VisitExchange& what,
                                      Trace::Clock::time_point posted,
                                      Trace::Clock::time_point waited) {
      self->TraceExchange(what, posted, waited);
    });
  }
  return e;
}

// Does not wait; the caller waits before the batch is freed.
void Engine::Load(const HostBatch& batch, int64_t step,
                  const UpdateControl& control) {
  const int64_t sequences = memory_.micro_batches * memory_.batch.micro_batch;
  DELINK_CHECK_EQ(static_cast<int64_t>(batch.samples.size()), sequences);
  Device& device = *env_.device;
  Stream& stream = *compute_stream_;
  loaded_key_ = Fold(Fold(KeyFromSeed(options_.seed), "step"),
                     static_cast<uint64_t>(step));
  loaded_control_ = control;
  LoadTokens(batch);
  device.CopyFromHost(stream, records_->samples, batch.samples.data(),
                      sequences * 8);
  device.CopyFromHost(stream, records_->step_key, &loaded_key_,
                      sizeof(loaded_key_));
  device.CopyFromHost(stream, records_->ControlOf(step), &loaded_control_,
                      sizeof(loaded_control_));
  device.FillZero(stream, records_->loss, sizeof(LossRecord));
  device.FillZero(stream, records_->layer_sums, memory_.layer_sums * 8);
}

// Loads this rank's tokens of each row. Positions are places in documents, or
// places in the row if visits have only a part of it.
void Engine::LoadTokens(const HostBatch& batch) {
  const BatchShape& shape = memory_.batch;
  const int64_t rows = memory_.micro_batches * shape.micro_batch;
  const auto expected = static_cast<size_t>(rows * shape.seq);
  DELINK_CHECK_EQ(batch.inputs.size(), expected);
  DELINK_CHECK_EQ(batch.targets.size(), expected);
  DELINK_CHECK_EQ(batch.positions.size(), shape.masked ? expected : 0);
  const auto copy = [&](int32_t* to, const std::vector<int32_t>& from) {
    env_.device->CopyFromHost(*compute_stream_, to, from.data(),
                              static_cast<int64_t>(from.size()) * 4);
  };
  LoadedTokens& here = loaded_tokens_;
  const auto load = [&](int32_t* to, const std::vector<int32_t>& from,
                        std::vector<int32_t>* cut) {
    if (shape.context > 1) CutRows(from, shape.seq, here.places, cut);
    copy(to, shape.context > 1 ? *cut : from);
  };
  if (memory_.positions && here.places.empty()) {
    const Layout& layout = env_.store->layout();
    const MeshPlace place = layout.mesh().PlaceOf(env_.store->rank());
    here.places =
        ContextPlaces(shape.seq, layout.mesh().context, place[Axis::kContext]);
  }
  load(records_->inputs, batch.inputs, &here.inputs);
  load(records_->targets, batch.targets, &here.targets);
  here.counted_targets = CountedTargets(batch.targets, memory_.micro_batches);
  if (shape.all_counted && running_->training()) {
    for (const int64_t counted : here.counted_targets) {
      DELINK_CHECK_EQ(counted, shape.tokens()) << "BatchShape::all_counted";
    }
  }
  env_.device->CopyFromHost(*compute_stream_, records_->counted_targets,
                            here.counted_targets.data(),
                            memory_.micro_batches * 8);
  if (records_->places != nullptr) copy(records_->places, here.places);
  if (records_->documents != nullptr) {
    copy(records_->documents, batch.positions);
  }
  if (shape.masked) {
    load(records_->positions, batch.positions, &here.positions);
  } else if (memory_.positions) {
    here.positions.clear();
    for (int64_t row = 0; row < rows; ++row) {
      here.positions.insert(here.positions.end(), here.places.begin(),
                            here.places.end());
    }
    copy(records_->positions, here.positions);
  }
}

absl::Status Engine::Run(const Pass& pass, const HostBatch& batch, int64_t step,
                         const UpdateControl& control) {
  if (running_ != &pass) DELINK_RETURN_IF_ERROR(Drain());
  running_ = &pass;
  step_ = step;
  for (UpdateLane* const lane : {host_lane_.get(), update_lane_.get()}) {
    if (lane != nullptr) lane->Begin(step, env_.store->updates());
  }
  found_ = {.apart = std::vector<double>(
                static_cast<size_t>(pass.program.shape.slabs), 0)};
  DeviceTimes* const times = TimesOf(pass, step);
  if (times != nullptr) times->BeginStep(step, *compute_stream_);
  Load(batch, step, control);
  const PassKind kind = pass.program.kind;
  if (kind == PassKind::kStep || kind == PassKind::kGradients) ClearSums();
  if (times != nullptr) times->Loaded(*compute_stream_);
  return lanes_->Run(pass, step);
}

// A step's result is known before its updates: while the device runs them, the
// host goes on to the next step.
void Engine::SendResult() {
  env_.device->CopyToHost(*compute_stream_, &result_.control,
                          records_->ControlOf(step_), sizeof(result_.control));
  env_.device->CopyToHost(*compute_stream_, &result_.votes,
                          records_->layer_sums - 1, sizeof(result_.votes));
  if (memory_.layer_sums > 0) {
    result_.layer_sums.resize(static_cast<size_t>(memory_.layer_sums));
    env_.device->CopyToHost(*compute_stream_, result_.layer_sums.data(),
                            records_->layer_sums, memory_.layer_sums * 8);
  }
  compute_stream_->Record(*records_->result);
  DeviceTimes* const times = TimesOf(*running_, step_);
  if (times != nullptr) times->Result(*compute_stream_);
}

// The one place of a step where the host waits for the device.
const Engine::Result& Engine::WaitForResult() {
  DeviceTimes* const times = TimesOf(*running_, step_);
  if (times != nullptr) times->EndStep(*compute_stream_);
  compute_stream_->SynchronizeWith(*records_->result);
  if (times != nullptr) times->Waited();
  return result_;
}

absl::Status Engine::Drain() {
  DELINK_RETURN_IF_ERROR(lanes_->Drain());
  compute_stream_->Synchronize();
  network_stream_->Synchronize();
  if (gather_stream_ != nullptr) gather_stream_->Synchronize();
  neighbours_->Synchronize();
  for (const auto& stream : bus_streams_) {
    if (stream != nullptr) stream->Synchronize();
  }
  if (update_lane_ != nullptr) update_lane_->stream().Synchronize();
  if (times_ != nullptr) times_->Settle();
  return absl::OkStatus();
}

Stream& Engine::StreamOf(Lane lane) const {
  if (lane == Lane::kCompute) return *compute_stream_;
  if (lane == Lane::kNetwork) return *network_stream_;
  if (lane == Lane::kGather) return *gather_stream_;
  if (IsOverBus(lane)) return *At(bus_streams_, lane);
  if (lane == Lane::kUpdates) return update_lane_->stream();
  if (lane == Lane::kHost) return host_lane_->stream();
  return neighbours_->StreamOf(lane);
}

std::unique_ptr<Pending> Engine::Execute(const Pass& pass, int32_t index,
                                         int64_t step) {
  const Instruction& at = At(pass.program.instructions, index);
  const std::string& name = At(pass.names, index);
  const Trace::Clock::time_point begin =
      Traced(pass, step) ? Trace::Clock::now() : Trace::Clock::time_point();
  if (env_.watch != nullptr) env_.watch->Begin(at.lane, step, name);
  if (at.lane == Lane::kCompute) computing_ = index;
  const ProfileRange range(name.c_str());
  Stream& stream = StreamOf(at.lane);
  for (const Dependency& d : At(pass.analysis.dependencies, index)) {
    stream.Wait(*At(pass.events, d.instruction));
  }
  DeviceTimes* const times = TimesOf(pass, step);
  if (times != nullptr) times->Begin(index, step, stream);
  std::unique_ptr<Pending> exchange =
      IsOverBus(at.lane) ? DoOverBus(pass, index, step) : Do(pass, index, step);
  if (at.lane == Lane::kCompute && !visit_groups_->status().ok()) {
    return std::make_unique<Failed>(visit_groups_->status());
  }
  if (exchange == nullptr) {
    End(pass, index, step, begin);
    return nullptr;
  }
  return Chain(std::move(exchange),
               {[=, this, &pass]() -> std::unique_ptr<Pending> {
                 End(pass, index, step, begin);
                 return nullptr;
               }});
}

void Engine::End(const Pass& pass, int32_t index, int64_t step,
                 Trace::Clock::time_point begin) {
  Stream& stream = StreamOf(At(pass.program.instructions, index).lane);
  DeviceTimes* const times = TimesOf(pass, step);
  if (times != nullptr) times->End(index, step, stream);
  if (Event* const event = At(pass.events, index).get(); event != nullptr) {
    stream.Record(*event);
  }
  if (!Traced(pass, step)) return;
  env_.trace->Add({.step = step,
                   .program = pass.traced,
                   .index = index,
                   .begin = begin,
                   .end = Trace::Clock::now()});
}

void Engine::TellWait(const Pass& pass, int32_t index, int64_t step) {
  if (env_.watch == nullptr) return;
  // Not "", which would make a string of both.
  const std::string_view name =
      index < 0 ? std::string_view() : At(pass.names, index);
  const VisitExchange* const within = visit_groups_->under_way();
  if (index < 0 || within == nullptr) return env_.watch->Wait(step, name);
  env_.watch->Wait(
      step, absl::StrCat(absl::string_view(name.data(), name.size()), ": ",
                         ToString(*within)));
}

std::unique_ptr<Pending> Engine::Do(const Pass& pass, int32_t index,
                                    int64_t step) {
  const Instruction& at = At(pass.program.instructions, index);
  const Writes writes = {At(pass.analysis.written, index),
                         At(pass.analysis.cleared, index)};
  const int slab = at.slab < 0 ? -1 : SlabHere(*env_.store, at.slab);
  switch (at.op) {
    case Op::kForward:
      Forward(pass, at);
      break;
    case Op::kLoss:
      Loss(pass, at, writes);
      break;
    case Op::kBackward:
      Backward(pass, at, writes);
      break;
    case Op::kBackwardInput:
      BackwardInput(pass, at);
      break;
    case Op::kBackwardWeight:
      BackwardWeight(pass, at, writes);
      break;
    case Op::kSend:
    case Op::kRecv:
      return Exchange(pass, at);
    case Op::kReduce:
      return Reduce(pass, slab, Adds(pass.analysis, index));
    case Op::kSquares:
      Squares(slab);
      break;
    case Op::kNorm:
      return Norm();
    case Op::kUpdate:
      if (at.lane == Lane::kHost) return UpdateOnHost(slab, step);
      if (at.lane == Lane::kUpdates) return UpdateLate(slab, step);
      Update(slab);
      break;
    case Op::kGather:
      return Gather(slab);
    case Op::kFetch:
    case Op::kTake:
      return Arrive(pass, index);
    case Op::kEvict:
      return Evict(at);
    case Op::kStoreSlot:
      return StoreSlot(pass, at);
    case Op::kLoadSlot:
      LoadSlot(pass, at);
      break;
    case Op::kRelease:
      Redirect(slab, PlaneSetOf(at), nullptr);
      break;
    case Op::kInspect:
      Inspect(pass, at, "output",
              InputTensor(pass, at.layer + 1, at.micro_batch));
      break;
    case Op::kProbe:
      return Probe(pass, at, writes.written.front());
    case Op::kSum:
      return Sum(pass);
    default:
      DELINK_CHECK(false) << "the engine does not do " << ToString(at);
  }
  return nullptr;
}

}  // namespace delink
