#include "tests/recipes/run/step_rig.h"

#include <algorithm>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/rng.h"
#include "framework/module/binder.h"
#include "framework/optim/adafactor.h"
#include "framework/optim/muon.h"
#include "framework/optim/param_rules.h"
#include "framework/sharing/delink.h"
#include "framework/sharing/resolve.h"
#include "framework/step/plan/assemble.h"
#include "framework/tensor/bfloat16.h"
#include "layers/ops/accumulate.h"
#include "layers/ops/matrix_product.h"
#include "offload/plan/residency.h"
#include "parallel/pipeline/interleaved.h"
#include "parallel/pipeline/one_f_one_b.h"
#include "parallel/pipeline/zero_bubble.h"
#include "recipes/models/gpt.h"
#include "recipes/models/llama.h"
#include "recipes/models/moe.h"
#include "tests/recipes/run/some_blocks.h"
#include "tests/testing/documents.h"

namespace delink::testing {
namespace {

template <typename Config>
Config Sized(Config c, const RigOptions& options) {
  c.layers = options.layers;
  c.dim = StepRig::kDim;
  c.heads = StepRig::kHeads;
  if (c.kv_heads == 0) c.kv_heads = StepRig::kKvHeads;
  c.ffn = 40;
  c.vocab = StepRig::kVocab;
  c.max_seq = StepRig::kSeq;
  c.tied = options.tied;
  c.dropout = options.dropout;
  c.init_std = options.init_std;
  return c;
}

std::unique_ptr<Sequential> Build(const Scope& scope,
                                  const RigOptions& options) {
  if (options.llama.has_value()) {
    return BuildLlama(scope, Sized(*options.llama, options));
  }
  GptConfig gpt = Sized(GptConfig(), options);
  gpt.norm = options.norm;
  gpt.activation = options.activation;
  gpt.bias = options.bias;
  return options.build ? options.build(scope, gpt) : BuildGpt(scope, gpt);
}

std::unique_ptr<Device> MakeDevice(DeviceKind kind) {
  if (kind == DeviceKind::kCpu) return NewCpuDevice();
  absl::StatusOr<std::unique_ptr<Device>> device = NewCudaDevice(0);
  DELINK_CHECK(device.ok()) << std::string(device.status().message());
  return *std::move(device);
}

template <typename T>
std::vector<float> As(const std::vector<char>& bytes) {
  const T* const values = reinterpret_cast<const T*>(bytes.data());
  return {values, values + bytes.size() / sizeof(T)};
}

}  // namespace

RigOptions OfMoe(const MoeConfig& c, RigOptions options) {
  options.build = [c](const Scope& scope, const GptConfig& sizes) {
    MoeConfig sized = c;
    sized.layers = sizes.layers;
    sized.vocab = sizes.vocab;
    sized.max_seq = sizes.max_seq;
    sized.gpt = sizes;
    static_cast<TransformerConfig&>(sized.llama) = sizes;
    return BuildMoe(scope, sized);
  };
  return options;
}

RigOptions OfKind(const std::string& kind, RigOptions options) {
  if (kind == "gpt") return options;
  if (kind.starts_with("moe")) {
    MoeConfig c;
    c.block = MoeConfig::Block::kGpt;
    c.experts = 8;
    c.top_k = 2;
    if (kind == "moe capacity") c.capacity = 0.75;
    if (kind == "moe prototypes") c.prototypes = c.top_k = 4;
    c.expert_ffn = 20;
    c.shared_experts = 1;
    c.aux_loss = 0.1;
    return OfMoe(c, options);
  }
  DELINK_CHECK(kind == "llama") << kind;
  LlamaConfig& c = options.llama.emplace();
  c.qk_norm = true;
  c.qkv_bias = true;
  c.window = 7;
  c.z_loss = 0.01;
  return options;
}

StepRig::StepRig(Communicator& comm, const std::string& share,
                 const RigOptions& options)
    : comm_(comm), options_(options), device_(MakeDevice(options.device)) {
  model_ = Build(Scope(registry_, options.dtype), options);
  if (options.only_visited) {
    whole_model_ = std::move(model_);
    model_ = KeepBlocks(options.visited, *whole_model_, registry_);
    options_.visited.clear();
  }
  const ParamRules rules({.beta1 = 0.9, .beta2 = 0.95, .momentum = 0.9});
  optimizer_ = options.muon        ? NewMuon({}, rules, MultiplyMatrices)
               : options.adafactor ? NewAdafactor({}, rules)
                                   : NewAdamW(options.adamw);
  network_ = *comm.Split(0, comm.rank());
  store_ = MakeStore(share);
  store_->InitWeights(1);
  MakeExecutor();
}

Mesh StepRig::MeshOf() const {
  const int others = options_.tensor * options_.context * options_.pipeline;
  return {.tensor = options_.tensor,
          .context = options_.context,
          .data = comm_.size() / others,
          .pipeline = options_.pipeline,
          .expert = options_.expert,
          .expert_nodes = options_.expert_nodes,
          .order = options_.rank_order};
}

// As many layers a chunk as even as can be.
std::vector<int> StepRig::ChunksOf(int places) const {
  const int chunks = options_.pipeline * options_.turns;
  std::vector<int> chunk_of(static_cast<size_t>(places));
  for (int c = 0; c < chunks; ++c) {
    std::fill(chunk_of.begin() + places * c / chunks, chunk_of.end(), c);
  }
  return chunk_of;
}

std::unique_ptr<ParamStore> StepRig::MakeStore(const std::string& share) {
  const SharingMap map = *ResolveSharing(*ParseShareSpec(share), registry_,
                                         model_->blocks(), options_.visited);
  const int blocks = model_->blocks();
  Layout layout = Layout::Create(
      registry_, blocks, map,
      {.mesh = MeshOf(),
       .chunks = ChunksOf(static_cast<int>(map.VisitedOf(blocks).size()) + 2),
       .zero = options_.zero,
       .shard = options_.shard,
       .reduces_micro_batches = options_.reduces_micro_batches,
       .whole_tensors = optimizer_->whole_tensors(),
       .sequence = options_.sequence});
  return *ParamStore::Create(*device_, std::move(layout), comm_.rank(),
                             {.dtype = options_.dtype,
                              .states = optimizer_->states(),
                              .bf16_gradients = options_.bf16_gradients});
}

absl::StatusOr<std::unique_ptr<Executor>> StepRig::NewExecutor(
    const Planner& planner, const std::vector<bool>& recompute) {
  const int64_t local = options_.global_batch / MeshOf().data;
  return Executor::Create(
      {.device = device_.get(),
       .model = model_.get(),
       .store = store_.get(),
       .optimizer = optimizer_.get(),
       .compute = &comm_,
       .network = network_.get(),
       .accumulate = Accumulate,
       .watch = options_.watch,
       .trace = options_.trace},
      {.batch = {.micro_batch = options_.micro_batch,
                 .seq = kSeq,
                 .masked = options_.masked,
                 .remake = options_.remake,
                 .expert_room = options_.expert_room,
                 .expert_overlap = options_.expert_overlap},
       .micro_batches = static_cast<int32_t>(local / options_.micro_batch),
       .planner = planner,
       .recompute = recompute,
       .clip = options_.clip,
       .lane_threads = options_.lane_threads,
       .probes = options_.probes});
}

void StepRig::MakeExecutor() {
  Planner planner =
      BasicPlanner({.order = options_.order, .recompute = options_.recompute});
  if (options_.pipeline > 1) {
    planner = PlannerOf(options_.turns > 1 ? Interleaved
                        : options_.halves  ? ZeroBubble
                                           : OneFOneB,
                        options_.recompute);
  }
  absl::StatusOr<std::unique_ptr<Executor>> executor =
      NewExecutor(WithResidency(planner));
  DELINK_CHECK(executor.ok()) << std::string(executor.status().message());
  executor_ = *std::move(executor);
}

void StepRig::Switch(const std::string& share, StatePolicy policy) {
  DELINK_CHECK(executor_->Drain().ok());
  executor_.reset();
  std::unique_ptr<ParamStore> next = MakeStore(share);
  const absl::Status status = Delink(*store_, *next, policy, comm_);
  DELINK_CHECK(status.ok()) << std::string(status.message());
  store_ = std::move(next);
  MakeExecutor();
}

HostBatch StepRig::Batch(int64_t index) const {
  const Mesh mesh = MeshOf();
  const int64_t local = options_.global_batch / mesh.data;
  const int64_t place = mesh.PlaceOf(comm_.rank())[Axis::kData];
  const RngKey key = Fold(KeyFromSeed(99), static_cast<uint64_t>(index));
  HostBatch batch;
  for (int64_t b = 0; b < local; ++b) {
    const int64_t sample = place * local + b;
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
  if (!options_.masked) return batch;
  const std::vector<int32_t> all =
      Positions(options_.global_batch, kSeq, {5, 1, 3, 20});
  const auto first = all.begin() + place * local * kSeq;
  batch.positions.assign(first, first + local * kSeq);
  for (size_t i = 0; i < batch.positions.size(); ++i) {
    const auto next = first + static_cast<int64_t>(i) + 1;
    if (next != all.end() && *next == 0) batch.targets[i] = -1;
  }
  return batch;
}

std::vector<float> StepRig::Logits(const HostBatch& batch) {
  DELINK_CHECK(options_.dtype == DType::kF32);
  const std::unique_ptr<Stream> stream = device_->NewStream();
  HeapMemory memory(*device_);
  Tape tape({.device = device_.get(),
             .stream = stream.get(),
             .accumulate = Accumulate},
            memory);
  std::vector<int32_t> tokens = batch.inputs;
  const auto sequences = static_cast<int64_t>(batch.samples.size());
  std::vector<float> boundary;
  Tensor x(tokens.data(), DType::kI32, {sequences, kSeq});
  Binder binder(*store_);
  for (const int layer : store_->visited()) {
    binder.Bind(layer, nullptr);
    tape.BeginForward(Phase::kEval, {.training = false});
    const Var y = model_->layer(layer)(tape.Input(x, false));
    std::vector<float> values(static_cast<size_t>(y.value().elements()));
    device_->CopyToHost(*stream, values.data(), y.data(), y.value().bytes());
    stream->Synchronize();
    const Shape shape = y.shape();
    boundary = std::move(values);
    x = Tensor(boundary.data(), DType::kF32, shape);
  }
  return boundary;
}

std::vector<std::string> StepRig::Tensors() const {
  std::vector<std::string> names;
  for (const LogicalTensor& t : store_->layout().tensors()) {
    if (t.link.empty()) names.push_back(t.name);
  }
  return names;
}

std::vector<std::string> StepRig::TensorsHere() const {
  std::vector<std::string> names;
  for (const LogicalTensor& t : store_->layout().tensors()) {
    if (!t.link.empty() || store_->LocalSlabsOf(t.slab).empty()) continue;
    names.push_back(t.name);
  }
  return names;
}

std::vector<float> StepRig::Read(const std::string& tensor, Plane plane) const {
  const absl::Status drained = executor_->Drain();
  DELINK_CHECK(drained.ok()) << drained;
  const LogicalTensor& t = Find(tensor);
  const int slab = store_->LocalSlabsOf(t.slab).front();
  const DType dtype = store_->dtype(slab, plane);
  std::vector<char> bytes(
      static_cast<size_t>(t.shape.elements() * SizeOf(dtype)));
  const std::unique_ptr<Stream> stream = device_->NewStream();
  device_->CopyToHost(*stream, bytes.data(), store_->at(slab, plane, t.offset),
                      static_cast<int64_t>(bytes.size()));
  stream->Synchronize();
  if (dtype == DType::kBF16) return As<BFloat16>(bytes);
  DELINK_CHECK(dtype == DType::kF32);
  return As<float>(bytes);
}

const LogicalTensor& StepRig::Find(const std::string& tensor) const {
  for (const LogicalTensor& t : store_->layout().tensors()) {
    if (t.name == tensor) return t;
  }
  DELINK_CHECK(false) << "no tensor " << tensor;
  return store_->layout().tensors().front();
}

std::vector<StepRig::Run> StepRig::Runs(const std::string& tensor,
                                        Plane plane) const {
  const absl::Status drained = executor_->Drain();
  DELINK_CHECK(drained.ok()) << drained;
  const LogicalTensor& t = Find(tensor);
  const DType dtype = store_->TypeOf(plane, store_->IsExact(t));
  const std::unique_ptr<Stream> stream = device_->NewStream();
  std::vector<Run> runs;
  for (const int slab : store_->LocalSlabsOf(t.slab)) {
    const LocalSlab& local = store_->local(slab);
    for (size_t p = 0; p < local.params.size(); ++p) {
      const SlabParam& param = local.slab.params[p];
      if (local.params[p] != t.param) continue;
      Range here = store_->held(slab, plane);
      // The rest of a gradient is not reduced on this rank.
      if (plane == Plane::kGradient && options_.zero > 0) {
        here = store_->owned(slab);
      }
      const auto in_param = [&](int64_t element) {
        return std::clamp<int64_t>(element - param.offset, 0, param.elements);
      };
      ForEachLogicalRun(
          local, p, store_->registry(),
          {in_param(here.begin), in_param(here.end)},
          [&](Range range, int64_t first) {
            Run& run = runs.emplace_back(Run{.first = first});
            std::vector<char> values(
                static_cast<size_t>(range.size() * SizeOf(dtype)));
            device_->CopyToHost(
                *stream, values.data(),
                store_->at(slab, plane, param.offset + range.begin),
                std::ssize(values));
            stream->Synchronize();
            for (int64_t i = 0; i < range.size(); ++i) {
              const char* const at = values.data() + i * SizeOf(dtype);
              run.values.push_back(
                  dtype == DType::kF64 ? *reinterpret_cast<const double*>(at)
                  : dtype == DType::kF32
                      ? *reinterpret_cast<const float*>(at)
                      : float{*reinterpret_cast<const BFloat16*>(at)});
            }
          });
    }
  }
  return runs;
}

std::vector<float> StepRig::Gradient(const std::string& tensor) const {
  return Read(tensor, Plane::kGradient);
}

}  // namespace delink::testing
