// Streams and memory that the engine takes from its device, all in Create.
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/step/engine/engine_state.h"

namespace delink {

// Collective, so it runs first: a rank that lacks memory fails only later.
absl::Status Engine::MakeStreams(const Passes& passes) {
  Device& device = *env_.device;
  const ProgramShape& shape = passes.begin()->second.program.shape;
  compute_stream_ = device.NewStream("compute");
  network_stream_ = device.NewStream("network");
  compute_comm_ = StageThroughHost(device, *compute_stream_, *env_.compute);
  DELINK_ASSIGN_OR_RETURN(
      groups_,
      SlabGroups::Create(*env_.store, device, *network_stream_, *env_.network,
                         {.stages = passes.contains(PassKind::kProbe),
                          .shards = !shape.shards.empty()}));
  DELINK_ASSIGN_OR_RETURN(
      visit_groups_,
      StepVisitGroups::Create(env_.store->layout().mesh(), device,
                              *compute_stream_, *env_.compute));
  const Mesh& mesh = env_.store->layout().mesh();
  if (passes.contains(PassKind::kProbe) && mesh.tensor * mesh.context > 1) {
    DELINK_ASSIGN_OR_RETURN(
        probe_groups_, SlabGroups::Create(*env_.store, device, *compute_stream_,
                                          *env_.compute, {.visits = true}));
  }
  if (!shape.shards.empty()) {
    gather_stream_ = device.NewStream("gather");
    DELINK_ASSIGN_OR_RETURN(gather_network_,
                            env_.network->Split(0, env_.network->rank()));
    DELINK_ASSIGN_OR_RETURN(
        gather_groups_, SlabGroups::Create(*env_.store, device, *gather_stream_,
                                           *gather_network_, {.shards = true}));
  }
  for (const auto& [kind, pass] : passes) {
    for (const Instruction& at : pass.program.instructions) {
      if (!IsOverBus(at.lane)) continue;
      std::unique_ptr<Stream>& stream = At(bus_streams_, at.lane);
      if (stream == nullptr) stream = device.NewStream(ToString(at.lane));
    }
  }
  if (!shape.host_updates.empty()) {
    host_lane_ = UpdateLane::Create(device, "host", memory_.host_scratch);
    env_.host_optimizer->set_scratch(host_lane_->scratch());
  }
  if (!shape.late_updates.empty()) {
    update_lane_ = UpdateLane::Create(device, "updates");
  }
  DELINK_ASSIGN_OR_RETURN(
      neighbours_,
      Neighbours::Create(env_.store->layout().mesh(), device, *env_.network));
  return absl::OkStatus();
}

namespace {

// Memory for stored slots, whose begin it sets; null if no slot is stored, or
// on the meta device.
absl::StatusOr<std::unique_ptr<HostArena>> ArenaFor(Device& device,
                                                    int64_t bytes,
                                                    char** begin) {
  if (bytes == 0 || IsMeta(device.kind())) return nullptr;
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<HostArena> arena,
                          HostArena::Create(device, bytes));
  DELINK_ASSIGN_OR_RETURN(void* const at, arena->Take(bytes, "slots"));
  *begin = static_cast<char*>(at);
  return arena;
}

}  // namespace

absl::Status Engine::Allocate() {
  Device& device = *env_.device;
  const auto explain = [&](const char* what, const absl::Status& status) {
    if (status.ok()) return status;
    return absl::ResourceExhaustedError(absl::StrCat(
        "memory for ", what, ": ", status.message(), "; the step needs: ",
        ToString(AccountOf(*env_.store, memory_)), "; use a smaller ",
        memory_.batch.micro_batch > 1 ? "run.micro_batch" : "data.seq",
        memory_.recompute ? "" : " or run.recompute = \"block\"",
        memory_.stored_bytes() > 0
            ? ""
            : " or stage.offload.activations = \"host\""));
  };
  const auto take = [&](const char* what, int64_t bytes,
                        Buffer* out) -> absl::Status {
    absl::StatusOr<Buffer> buffer = Buffer::Allocate(device, bytes, what);
    DELINK_RETURN_IF_ERROR(explain(what, buffer.status()));
    *out = *std::move(buffer);
    return absl::OkStatus();
  };
  // Kernels run on the compute lane, and where the device updates late.
  DELINK_RETURN_IF_ERROR(
      explain("the compute lane's kernels", compute_stream_->Prepare()));
  if (update_lane_ != nullptr) {
    DELINK_RETURN_IF_ERROR(
        explain("late updates", update_lane_->stream().Prepare()));
  }
  DELINK_RETURN_IF_ERROR(take("slots", memory_.slot_bytes(), &slots_));
  DELINK_RETURN_IF_ERROR(take(
      "boundaries", memory_.boundaries * memory_.boundary_bytes, &boundaries_));
  DELINK_RETURN_IF_ERROR(
      take("workspace", memory_.scratch_slot + memory_.workspace, &workspace_));
  DELINK_RETURN_IF_ERROR(take("copies", memory_.copies, &copies_));
  DELINK_RETURN_IF_ERROR(take("records", memory_.records, &records_buffer_));
  if (!memory_.fetched.empty()) {
    DELINK_RETURN_IF_ERROR(
        take("fetched planes", memory_.fetched_bytes(), &fetched_));
  }
  DELINK_ASSIGN_OR_RETURN(stored_arena_,
                          ArenaFor(device, memory_.stored_bytes(), &stored_));
  PlaceRecords();
  return absl::OkStatus();
}

void Engine::PlaceRecords() {
  records_ = std::make_unique<Records>();
  int64_t offset = 0;
  const auto place = [&](int64_t bytes) {
    void* const at = records_buffer_.at(offset);
    offset += AlignUp(bytes);
    return at;
  };
  const int64_t sequences = memory_.micro_batches * memory_.batch.micro_batch;
  const int64_t tokens = sequences * memory_.batch.local_seq();
  records_->inputs = static_cast<int32_t*>(place(tokens * 4));
  records_->targets = static_cast<int32_t*>(place(tokens * 4));
  records_->samples = static_cast<int64_t*>(place(sequences * 8));
  records_->counted_targets =
      static_cast<int64_t*>(place(memory_.micro_batches * 8));
  if (memory_.positions) {
    records_->positions = static_cast<int32_t*>(place(tokens * 4));
  }
  if (memory_.batch.context > 1) {
    records_->places =
        static_cast<int32_t*>(place(memory_.batch.local_seq() * 4));
    if (memory_.batch.masked) {
      records_->documents =
          static_cast<int32_t*>(place(sequences * memory_.batch.seq * 4));
    }
  }
  records_->sums = static_cast<double*>(place(memory_.sums * 8));
  records_->layer_sums = records_->sums + memory_.sums - memory_.layer_sums;
  if (!memory_.biases.empty()) {
    records_->moves = static_cast<double*>(place(2 * memory_.layer_sums * 8));
  }
  for (const auto& [slab, layers] : memory_.biases) {
    const auto bytes = static_cast<int64_t>(layers.size() * sizeof(int64_t));
    auto* const to = static_cast<int64_t*>(place(bytes));
    env_.device->CopyFromHost(*compute_stream_, to, layers.data(), bytes);
    records_->bias_layers[slab] = to;
  }
  const ParamStore& store = *env_.store;
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const auto slab = static_cast<int>(s);
    records_->squares.push_back(records_->sums + store.local(slab).first_cell);
    identical_.push_back(
        store.layout().IdenticalOverTensor(store.IndexOf(slab)));
  }
  records_->step_key = static_cast<RngKey*>(place(sizeof(RngKey)));
  records_->loss = static_cast<LossRecord*>(place(sizeof(LossRecord)));
  records_->controls =
      static_cast<UpdateControl*>(place(2 * sizeof(UpdateControl)));
  DELINK_CHECK_LE(offset, memory_.records);
  records_->result = env_.device->NewEvent();
}

void Engine::MakeEvents(Pass& pass) {
  pass.events.resize(pass.program.instructions.size());
  for (const std::vector<Dependency>& waits : pass.analysis.dependencies) {
    for (const Dependency& d : waits) {
      std::unique_ptr<Event>& event = At(pass.events, d.instruction);
      if (event == nullptr) event = env_.device->NewEvent();
    }
  }
}

void Engine::BuildVisits(const Program& any) {
  const Tape::Env env{
      .device = env_.device,
      .stream = compute_stream_.get(),
      .accumulate = env_.accumulate,
      .groups = visit_groups_->groups(env_.store->layout().options().sequence)};
  visits_.resize(layers_.size());
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (StageOf(any.shape, static_cast<int32_t>(l)) != any.stage) continue;
    for (int32_t m = 0; m < memory_.micro_batches; ++m) {
      visits_[l].push_back(std::make_unique<Visit>(layers_[l].visits, env));
    }
  }
}

}  // namespace delink
