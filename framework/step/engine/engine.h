// The engine runs passes. It interprets their instructions over a model, its
// parameters and one block of memory that was sized in advance. No other code
// runs a pass's layers. The engine keeps a pass's order, so recompute, gradient
// accumulation and the order of micro-batches are data given to it.
//
// No instruction waits for another rank: it posts its exchange, and the lanes
// (lane_runner.h) see when that is complete. Each lane has its own stream and,
// if it exchanges between ranks, its own StreamCommunicator.
//
// It allocates device memory in Create only. Pinned host memory for exchanges
// is allocated in the first step that needs it (plan/memory.h). One thread
// drives the engine; the lanes other than compute may have one further thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/at.h"
#include "framework/comm/communicator.h"
#include "framework/comm/stream_communicator.h"
#include "framework/device/host_arena.h"
#include "framework/module/binder.h"
#include "framework/module/sequential.h"
#include "framework/optim/slab_optimizer.h"
#include "framework/step/engine/host_batch.h"
#include "framework/step/engine/lane_runner.h"
#include "framework/step/engine/slow_bus.h"
#include "framework/step/engine/step_watch.h"
#include "framework/step/engine/update_lane.h"
#include "framework/step/groups/neighbours.h"
#include "framework/step/groups/slab_groups.h"
#include "framework/step/groups/visit_groups.h"
#include "framework/step/plan/memory.h"
#include "framework/step/program/pass.h"
#include "framework/step/time/device_times.h"
#include "framework/step/time/trace.h"

namespace delink {

// The norm of each logical slab, from the sums of all cells.
std::vector<double> NormsOf(const Layout& layout,
                            const std::vector<double>& sums);

class Engine {
 public:
  // Not owned; must outlive the engine. `compute` and `network` are two
  // communicators over the same ranks, so that the lanes do not disturb each
  // other's order. While a pass runs, only the engine uses them.
  struct Env {
    Device* device = nullptr;
    Sequential* model = nullptr;
    ParamStore* store = nullptr;
    SlabOptimizer* optimizer = nullptr;
    // An equal one for updates on the host: both may run at the same time.
    SlabOptimizer* host_optimizer = nullptr;
    Communicator* compute = nullptr;
    Communicator* network = nullptr;
    AccumulateFn accumulate = nullptr;
    StepWatch* watch = nullptr;  // optional
    Trace* trace = nullptr;      // optional; of optimizer steps
    // Optional: between the host and the device, where that is the CPU.
    SlowBus* bus = nullptr;
  };
  struct Options {
    uint64_t seed = 1;
    bool lane_threads = false;  // a thread for the lanes other than compute
  };

  // Allocates `memory`, which has room for the passes. The passes must outlive
  // the engine, which sets their events and their number in the trace. A
  // collective of `env.network`.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(
      const Env& env, const Options& options, std::vector<LayerPlan> layers,
      const StepMemory& memory, Passes& passes);
  ~Engine();

  // Gives a pass to the device; returns when its compute lane is enqueued. If
  // the last pass was another one, this waits until that is complete; two runs
  // of the same pass are ordered by its dependencies. The batch must live until
  // WaitForResult, or, if the pass has a kSum, until this returns. `step` seeds
  // dropout, `control` is what the host decides about an update.
  absl::Status Run(const Pass& pass, const HostBatch& batch, int64_t step,
                   const UpdateControl& control);

  // What kNorm of the last pass found. Waits for kNorm only, not for later
  // instructions.
  struct Result {
    UpdateControl control;
    double votes = 0;
    std::vector<double> layer_sums;  // of all layers, in the order of places
  };
  const Result& WaitForResult();
  // Waits for all lanes; must be called before others touch the store.
  absl::Status Drain();
  // Over all passes: the waits of the host's thread, not the device's.
  const WaitedSeconds& waited() const { return lanes_->waited(); }

  // The numbers that kSum of the last pass combined. An evaluation: the loss
  // over counted targets, and their number. A probe: `together` and `apart`
  // (Agreement) of each slab that blocks share. A diagnosis: the number of the
  // first visit whose output is not finite, counted by data place, then
  // micro-batch, layer, context and tensor place (the number of all visits if
  // there is none).
  const std::vector<double>& numbers() const { return numbers_; }
  // LossRecord::lost of that pass, over all ranks.
  double lost() const { return lost_; }
  // Of a diagnosis: what is not finite in this rank's first such visit, with
  // its layer and token; empty if there is none.
  const std::string& not_finite() const { return found_.what; }
  // The sums of all cells in the last kNorm, and the sums behind them.
  std::vector<double> SumsOnHost() const;
  // Puts them back, from another engine with the same cells.
  void PutSums(const std::vector<double>& sums);
  // The norm of each logical slab's parameters as they are now. Waits for all
  // lanes; changes nothing. Collective.
  absl::StatusOr<std::vector<double>> WeightNorms();
  // By place.
  const std::vector<LayerPlan>& layers() const { return layers_; }
  // Memory of stored slots; null if no slot is stored.
  const HostArena* stored() const { return stored_arena_.get(); }

 private:
  struct Visit;
  // Of an instruction (Analysis).
  struct Writes {
    const std::vector<bool>& written;
    const std::vector<int32_t>& cleared;
  };
  struct Records;

  Engine() = default;
  absl::Status MakeStreams(const Passes& passes);
  absl::Status Allocate();
  void PlaceRecords();
  void MakeEvents(Pass& pass);
  void BuildVisits(const Program& any);
  void Describe(Pass& pass);
  int64_t TracedBytes(const Pass& pass, const Instruction& at) const;
  // Null where the step is not traced, or the device is the host.
  DeviceTimes* TimesOf(const Pass& pass, int64_t step) const;

  // Instructions count layers by place and slabs as the layout does. The model,
  // the binder and the store use their own numbers.
  int LayerAt(int32_t place) const { return At(env_.store->visited(), place); }
  void Load(const HostBatch& batch, int64_t step, const UpdateControl& control);
  void LoadTokens(const HostBatch& batch);
  // Begins an instruction. Null: it is complete, or enqueued if the device is
  // asynchronous. On completion the thread that drives its lane calls End.
  std::unique_ptr<Pending> Execute(const Pass& pass, int32_t index,
                                   int64_t step);
  void End(const Pass& pass, int32_t index, int64_t step,
           Trace::Clock::time_point begin);
  void TraceExchange(const VisitExchange& what, Trace::Clock::time_point posted,
                     Trace::Clock::time_point waited);
  void TellWait(const Pass& pass, int32_t index, int64_t step);
  bool Traced(const Pass& pass, int64_t step) const {
    return pass.traced >= 0 && env_.trace->Wants(step);
  }
  Stream& StreamOf(Lane lane) const;
  // Does what an instruction says. If that exchanges, the result stands for
  // what is posted and for the work that follows it.
  std::unique_ptr<Pending> Do(const Pass& pass, int32_t index, int64_t step);
  static Phase PhaseOf(const Pass& pass, const Instruction& at);
  void Forward(const Pass& pass, const Instruction& at);
  void Loss(const Pass& pass, const Instruction& at, const Writes& writes);
  void Backward(const Pass& pass, const Instruction& at, const Writes& writes);
  void BackwardInput(const Pass& pass, const Instruction& at);
  void BackwardWeight(const Pass& pass, const Instruction& at,
                      const Writes& writes);
  std::unique_ptr<Pending> Exchange(const Pass& pass, const Instruction& at);
  // `adds`: the shard has the sum of other parts.
  std::unique_ptr<Pending> Reduce(const Pass& pass, int slab, bool adds);
  // The same over two groups (InTwoSteps), from `whole`.
  std::unique_ptr<Pending> ReduceInTwo(int slab, const void* whole, bool adds);
  // `gradient`: the slab's, at home or in a copy.
  void ClearIdentical(Stream& stream, int slab, void* gradient);
  void Squares(int slab);
  std::unique_ptr<Pending> Norm();
  void ClearSums();  // before a norm's first kSquares
  // Adds up the first `count` sums over all ranks; each rank has those of the
  // cells that it owns.
  std::unique_ptr<Pending> ExchangeSums(int64_t count);
  void Update(int slab);
  // After the slab's update, by the sums of the step, on the device.
  void MoveBiasesOf(int slab, int64_t step, Stream& stream);
  // Whether any pass moves something between the host and the device.
  bool CopiesOverBus() const;
  // An instruction of a lane over the bus, which may be slowed.
  std::unique_ptr<Pending> DoOverBus(const Pass& pass, int32_t index,
                                     int64_t step);
  // Instructions that move planes of slabs (engine_planes.cc).
  std::unique_ptr<Pending> Arrive(const Pass& pass, int32_t index);
  std::unique_ptr<Pending> Evict(const Instruction& at);
  void ClearPadding(int slab, void* gradient, Stream& stream);
  void Redirect(int slab, PlaneSet planes, char* copy);
  std::unique_ptr<Pending> UpdateOnHost(int slab, int64_t step);
  std::unique_ptr<Pending> UpdateLate(int slab, int64_t step);
  std::unique_ptr<Pending> Outward(const HostArena& to, Stream& stream);
  // Copies a slot to the host, and back.
  std::unique_ptr<Pending> StoreSlot(const Pass& pass, const Instruction& at);
  void LoadSlot(const Pass& pass, const Instruction& at);
  std::unique_ptr<Pending> Gather(int slab);
  void SendResult();
  void Inspect(const Pass& pass, const Instruction& at, std::string_view what,
               const Tensor& x);
  std::unique_ptr<Pending> Probe(const Pass& pass, const Instruction& at,
                                 bool written);
  double SumSquaresOf(int slab, const void* gradient, int64_t elements);
  bool CountsTogether(const Pass& pass, int32_t program_slab) const;
  LossRecord FoundLosses();
  std::vector<double> FoundAgreements(const Pass& pass);
  std::unique_ptr<Pending> Sum(const Pass& pass);

  VisitInputs InputsOf(const Pass& pass, const Instruction& visit) const;
  Tensor InputTensor(const Pass& pass, int32_t layer, int32_t m) const;
  // The gradient boundary of the layer's chunk.
  Tensor BoundaryTensor(const Pass& pass, int32_t layer, int32_t m) const;
  // Where a visit keeps what its backward reads.
  void* SavedRegion(const Pass& pass, const Instruction& at) const;
  // Where a visit writes the gradients that it keeps apart, by the slabs of its
  // layer; null for slabs whose gradients it does not.
  std::vector<void*> ApartAddresses(const Pass& pass, int32_t layer) const;
  // Where visits sum the slab's whole gradient.
  void* WholeGradient(const Pass& pass, int slab) const;
  // By the slabs of the visit's layer: where it puts its gradients, null for
  // the plane. Clears the padding of those that it is the first to write.
  std::vector<void*> GradientAddresses(const Pass& pass, const Instruction& at,
                                       const Writes& writes);
  void* SlotAddress(const Pass& pass, int32_t layer, int32_t m) const;
  // Where the slot is stored on the host.
  void* StoredAddress(const Pass& pass, int32_t layer, int32_t m) const;

  Env env_;
  Options options_;
  std::vector<LayerPlan> layers_;
  StepMemory memory_;
  std::unique_ptr<Binder> binder_;
  Buffer slots_, boundaries_, workspace_, copies_, records_buffer_, fetched_;
  std::unique_ptr<HostArena> stored_arena_;
  char* stored_ = nullptr;  // slots that are stored
  std::unique_ptr<Records> records_;
  std::unique_ptr<Stream> compute_stream_, network_stream_, gather_stream_;
  // By lane, for lanes over the bus that some pass uses.
  std::array<std::unique_ptr<Stream>, kLanes> bus_streams_;
  std::unique_ptr<UpdateLane> host_lane_;         // updates on the host
  std::unique_ptr<UpdateLane> update_lane_;       // late updates on the device
  std::unique_ptr<Communicator> gather_network_;  // of the network's ranks
  // One for each lane, because an operation of each may be under way.
  std::unique_ptr<StreamCommunicator> compute_comm_;
  std::unique_ptr<SlabGroups> groups_;         // the network's
  std::unique_ptr<SlabGroups> gather_groups_;  // the gathers'; often null
  std::vector<std::vector<Range>> identical_;  // by slab (layout.h)
  std::unique_ptr<Neighbours> neighbours_;
  std::unique_ptr<StepVisitGroups> visit_groups_;  // compute's, in visits
  std::unique_ptr<SlabGroups> probe_groups_;       // and in probes, of them
  std::vector<std::vector<std::unique_ptr<Visit>>> visits_;  // layer here, m
  std::unique_ptr<DeviceTimes> times_;

  const Pass* running_ = nullptr;  // that Run was given last
  int64_t step_ = 0;               // with it
  int32_t computing_ = -1;         // the instruction of compute begun last
  // Host memory of copies under way. The batch is the caller's; what is cut out
  // of it is kept here.
  struct LoadedTokens {
    std::vector<int32_t> inputs, targets, positions, places;
    std::vector<int64_t> counted_targets;
  };
  LoadedTokens loaded_tokens_;
  RngKey loaded_key_;
  UpdateControl loaded_control_;
  std::vector<double> host_moves_;  // of the last update on the host
  Result result_;
  // Found by instructions of the pass under way, for its kSum.
  struct Found {
    int64_t not_finite = -1;    // of visits that gave it the first
    std::string what;           // of it, for people
    std::vector<double> apart;  // by the program's slab: squares kProbe saw
  };
  Found found_;
  std::vector<double> numbers_;
  double lost_ = 0;

  std::unique_ptr<LaneRunner> lanes_;  // last: its thread uses all of the above
};

}  // namespace delink
