// The engine's instructions on slabs: reductions of gradients, their norm,
// updates, and gathers of weights.
#include <cstdint>
#include <vector>

#include "framework/base/at.h"
#include "framework/comm/chain.h"
#include "framework/optim/balance.h"
#include "framework/step/engine/engine_state.h"

namespace delink {
namespace {

// The rank at `root` gets the `count` elements that each rank has at its place
// in `whole`.
std::unique_ptr<Pending> GatherAt(StreamCommunicator& group, int root,
                                  void* whole, int64_t count, DType dtype) {
  std::vector<Transfer> transfers;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == root || (group.rank() != root && group.rank() != rank)) {
      continue;
    }
    void* const part = static_cast<char*>(whole) + rank * count * SizeOf(dtype);
    Transfer transfer{.count = count, .dtype = dtype};
    if (group.rank() == root) {
      transfer.recv = part;
      transfer.peer = rank;
    } else {
      transfer.send = part;
      transfer.peer = root;
    }
    transfers.push_back(transfer);
  }
  return group.Exchange(transfers);
}

}  // namespace

std::unique_ptr<Pending> Engine::Reduce(const Pass& pass, int slab, bool adds) {
  const ParamStore& store = *env_.store;
  if (GroupSize(store, slab) == 1) return nullptr;
  const bool probe = pass.program.kind == PassKind::kProbe;
  StreamCommunicator& group =
      probe ? groups_->OfMicroBatch(slab) : groups_->Of(slab);
  const int64_t count = store.slab(slab).ShardElements(group.size());
  const DType dtype = store.dtype(slab, Plane::kGradient);
  void* const whole = WholeGradient(pass, slab);
  ClearIdentical(*network_stream_, slab, whole);
  if (!probe && InTwoSteps(store, slab)) return ReduceInTwo(slab, whole, adds);
  // A probe needs the whole gradient, as do ranks that update whole slabs.
  const PlacementRow& row = store.placement(slab);
  const bool sharded = row.gradient.sharded && !probe;
  void* const plane = store.now(slab, Plane::kGradient);
  const bool owned = !probe && row.owner != kNoOwner;
  const bool gathers = probe || !row.state.sharded;
  const int64_t bytes = count * SizeOf(dtype);
  void* const own = static_cast<char*>(whole) + group.rank() * bytes;
  void* const staging = copies_.at(probe ? memory_.staging : 0);
  const auto keep = [=, this](const void* sum, int64_t n) {
    if (!adds) {
      env_.device->Copy(*network_stream_, plane, sum, n * SizeOf(dtype));
      return;
    }
    env_.accumulate(*env_.device, *network_stream_, dtype, plane, sum, n);
  };
  const bool in_shards = sharded && row.owner == kNoOwner;
  if (in_shards && !adds) {
    return group.ReduceScatter(whole, plane, count, dtype, ReduceOp::kSum);
  }
  return Chain(
      group.ReduceScatter(whole, staging, count, dtype, ReduceOp::kSum),
      {[=, this, &group]() -> std::unique_ptr<Pending> {
         if (in_shards) {
           keep(staging, count);
           return nullptr;
         }
         env_.device->Copy(*network_stream_, own, staging, bytes);
         if (owned) {
           return GatherAt(group, groups_->PlaceOf(slab, row.owner), whole,
                           count, dtype);
         }
         if (!gathers) return nullptr;
         return group.AllGather(whole, count, dtype);
       },
       [=, &store]() -> std::unique_ptr<Pending> {
         const bool owns = sharded && row.owner == store.rank();
         if (owns) keep(whole, store.slab(slab).elements);
         return nullptr;
       }});
}

std::unique_ptr<Pending> Engine::ReduceInTwo(int slab, const void* whole,
                                             bool adds) {
  const ParamStore& store = *env_.store;
  const DType dtype = store.dtype(slab, Plane::kGradient);
  const int64_t count = store.slab(slab).ShardElements(GroupSize(store, slab));
  StreamCommunicator& replicas = groups_->OfReplicas(slab);
  const int64_t part = count * replicas.size();
  void* const staging = copies_.at(0);
  void* const sum = copies_.at(part * SizeOf(dtype));
  void* const plane = store.now(slab, Plane::kGradient);
  return Chain(groups_->OfGather(slab).ReduceScatter(whole, staging, part,
                                                     dtype, ReduceOp::kSum),
               {[=, &replicas] {
                  return replicas.ReduceScatter(staging, adds ? sum : plane,
                                                count, dtype, ReduceOp::kSum);
                },
                [=, this]() -> std::unique_ptr<Pending> {
                  if (!adds) return nullptr;
                  env_.accumulate(*env_.device, *network_stream_, dtype, plane,
                                  sum, count);
                  return nullptr;
                }});
}

// If all places along the tensor axis have the same gradient, only one counts.
void Engine::ClearIdentical(Stream& stream, int slab, void* gradient) {
  const ParamStore& store = *env_.store;
  const MeshPlace place = store.layout().mesh().PlaceOf(store.rank());
  if (place[Axis::kTensor] == 0) return;
  const int64_t width = SizeOf(store.dtype(slab, Plane::kGradient));
  for (const Range& range : At(identical_, slab)) {
    env_.device->FillZero(stream,
                          static_cast<char*>(gradient) + range.begin * width,
                          range.size() * width);
  }
}

std::unique_ptr<Pending> Engine::Gather(int slab) {
  const ParamStore& store = *env_.store;
  const Slab& of = store.slab(slab);
  void* const held = store.now(slab, Plane::kWeight);
  const DType dtype = store.dtype(slab, Plane::kWeight);
  const bool sharded = store.placement(slab).weight.sharded;
  if (sharded && store.held(slab, Plane::kWeight).size() == 0) return nullptr;
  StreamCommunicator& group =
      sharded ? groups_->OfReplicas(slab) : groups_->Of(slab);
  const int owner = store.placement(slab).owner;
  if (owner != kNoOwner) {
    const int place = sharded ? groups_->OwnerInReplicas(slab)
                              : groups_->PlaceOf(slab, owner);
    return group.Broadcast(held, of.elements, dtype, place);
  }
  return group.AllGather(held, of.ShardElements(GroupSize(store, slab)), dtype);
}

void Engine::Squares(int slab) {
  const ParamStore& store = *env_.store;
  SumSquares(*compute_stream_, store, slab, store.owned(slab),
             At(records_->squares, slab));
}

std::unique_ptr<Pending> Engine::Norm() {
  // The loss and the tokens behind them travel in the same exchange.
  const LossRecord* const loss = records_->loss;
  WriteTail(*compute_stream_, *env_.device,
            {.loss_sum = &loss->loss_sum,
             .tokens = &loss->tokens,
             .lost = &loss->lost,
             .votes = env_.watch != nullptr ? env_.watch->Vote() : 0,
             .tail = records_->layer_sums - kTailSums});
  return Chain(
      ExchangeSums(memory_.sums), {[this]() -> std::unique_ptr<Pending> {
        FinishNorm(*compute_stream_, *env_.device, records_->sums,
                   env_.store->layout().cells(), records_->ControlOf(step_));
        if (records_->moves != nullptr) {
          env_.device->Copy(*compute_stream_, records_->MovesOf(step_, memory_),
                            records_->layer_sums, memory_.layer_sums * 8);
        }
        SendResult();
        return nullptr;
      }});
}

// Sums of slabs that are not here still have the result of the last exchange.
void Engine::ClearSums() {
  const ParamStore& store = *env_.store;
  if (store.slabs().size() == store.layout().local_slabs().size()) return;
  env_.device->FillZero(*compute_stream_, records_->sums,
                        store.layout().cells() * SizeOf(DType::kF64));
}

std::unique_ptr<Pending> Engine::ExchangeSums(int64_t count) {
  if (env_.compute->size() == 1) return nullptr;
  return compute_comm_->AllReduce(records_->sums, count, DType::kF64,
                                  ReduceOp::kSum);
}

void Engine::Update(int slab) {
  env_.optimizer->set_scratch(workspace_.data());
  env_.optimizer->set_tensor_group(visit_groups_->groups(false).tensor);
  env_.optimizer->Update(*compute_stream_, *env_.store, slab,
                         records_->ControlOf(step_),
                         At(env_.store->updates(), slab) + 1);
  MoveBiasesOf(slab, step_, *compute_stream_);
}

void Engine::MoveBiasesOf(int slab, int64_t step, Stream& stream) {
  const auto layers = records_->bias_layers.find(slab);
  if (layers == records_->bias_layers.end()) return;
  MoveBiases(stream, *env_.store, slab, records_->ControlOf(step),
             records_->MovesOf(step, memory_), layers->second);
}

}  // namespace delink
