#include "tests/recipes/run/step_rig.h"

#include "framework/base/check.h"
#include "framework/base/rng.h"
#include "framework/sharing/resolve.h"
#include "layers/ops/accumulate.h"
#include "recipes/models/gpt.h"

namespace delink::testing {

StepRig::StepRig(Communicator& comm, const std::string& share,
                 const RigOptions& options)
    : comm_(comm), options_(options), device_(NewCpuDevice()) {
  config_.layers = options.layers;
  config_.dim = 24;
  config_.heads = 4;
  config_.kv_heads = 2;
  config_.ffn = 40;
  config_.vocab = kVocab;
  config_.max_seq = kSeq;
  config_.tied = options.tied;
  config_.dropout = options.dropout;
  model_ = BuildGpt(Scope(registry_), config_);
  const SharingMap map =
      *ResolveSharing(*ParseShareSpec(share), registry_, model_->blocks());
  optimizer_ = NewAdamW(options.adamw);
  store_ = *ParamStore::Create(*device_, registry_, model_->blocks(), map,
                               options.zero,
                               {.rank = comm.rank(),
                                .ranks = comm.size(),
                                .states = optimizer_->states()});
  store_->InitWeights(1);
  network_ = *comm.Split(0, comm.rank());
  const int64_t local = options.global_batch / comm.size();
  absl::StatusOr<std::unique_ptr<Executor>> executor = Executor::Create(
      {.device = device_.get(),
       .model = model_.get(),
       .store = store_.get(),
       .optimizer = optimizer_.get(),
       .compute = &comm,
       .network = network_.get(),
       .accumulate = Accumulate},
      {.batch = {.micro_batch = options.micro_batch, .seq = kSeq},
       .micro_batches = static_cast<int32_t>(local / options.micro_batch),
       .plan = {.order = options.order, .recompute = options.recompute},
       .clip = options.clip,
       .lane_threads = options.lane_threads});
  DELINK_CHECK(executor.ok()) << std::string(executor.status().message());
  executor_ = *std::move(executor);
}

HostBatch StepRig::Batch(int64_t index) const {
  const int64_t local = options_.global_batch / comm_.size();
  const RngKey key = Fold(KeyFromSeed(99), static_cast<uint64_t>(index));
  HostBatch batch;
  for (int64_t b = 0; b < local; ++b) {
    const int64_t sample = comm_.rank() * local + b;
    batch.samples.push_back(index * options_.global_batch + sample);
    for (int64_t t = 0; t <= kSeq; ++t) {
      const auto token = static_cast<int32_t>(
          Philox(key, static_cast<uint64_t>(sample * (kSeq + 1) + t), 0)[0] %
          kVocab);
      if (t < kSeq) batch.inputs.push_back(token);
      // Some targets do not count.
      if (t > 0) batch.targets.push_back(token % 7 == 0 ? -1 : token);
    }
  }
  return batch;
}

std::vector<float> StepRig::Read(const std::string& tensor, Plane plane) const {
  for (const LogicalTensor& t : store_->logical_tensors()) {
    if (t.name != tensor) continue;
    std::vector<float> values(static_cast<size_t>(t.shape.elements()));
    const std::unique_ptr<Stream> stream = device_->NewStream();
    device_->CopyToHost(*stream, values.data(),
                        store_->at(t.slab, plane, t.offset),
                        t.shape.elements() * SizeOf(DType::kF32));
    stream->Synchronize();
    return values;
  }
  DELINK_CHECK(false) << "no tensor " << tensor;
  return {};
}

std::vector<float> StepRig::Gradient(const std::string& tensor) const {
  return Read(tensor, Plane::kGradient);
}

}  // namespace delink::testing
