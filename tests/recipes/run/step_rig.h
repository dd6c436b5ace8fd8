// A small gpt or llama under an executor, without files: for tests of single
// steps.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/optim/adamw.h"
#include "framework/sharing/share_spec.h"
#include "framework/sharing/state_policy.h"
#include "framework/step/engine/executor.h"
#include "framework/step/plan/basic.h"
#include "recipes/models/gpt_config.h"
#include "recipes/models/llama_config.h"
#include "recipes/models/moe_config.h"

namespace delink::testing {

struct RigOptions {
  DeviceKind device = DeviceKind::kCpu;  // or kCuda: number 0
  DType dtype = DType::kF32;             // kBF16: with an f32 master
  bool bf16_gradients = false;           // of kBF16
  int64_t layers = 4;
  std::vector<int> visited = {};  // as SharingMap has them
  bool only_visited = false;      // the model has no other blocks than those
  int64_t micro_batch = 2;
  int64_t global_batch = 8;
  bool tied = true;
  bool recompute = false;
  bool remake = true;
  bool lane_threads = false;
  bool probes = false;
  bool masked = false;  // documents, which are then in every batch
  double clip = 0;
  double dropout = 0;
  double init_std = 0.02;
  MicroBatchOrder order = MicroBatchOrder::kMicroBatchMajor;
  int zero = 0;
  int shard = 0;                       // with zero 3
  bool reduces_micro_batches = false;  // with zero 2 and 3
  // Ranks between which layers and rows are cut, and whether activations are
  // between cut products; what is left of the ranks are data ranks.
  int tensor = 1;
  int context = 1;
  bool sequence = false;
  // Neighbours among all of these that have experts, and BatchShape's.
  int expert = 1, expert_nodes = 1;
  double expert_room = 0;
  bool expert_overlap = false;
  std::array<Axis, kMeshAxes> rank_order = Mesh().order;
  // Stages of a pipeline, and how many chunks each has: 1F1B, where `halves`
  // says so zero-bubble, or interleaved. `order` then says nothing.
  int pipeline = 1;
  int turns = 1;
  bool halves = false;
  NormKind norm = NormKind::kLayerNorm;
  GeluForm activation = GeluForm::kTanh;
  bool bias = true;
  // Instead of a gpt. Of its sizes kv_heads and head_dim count, where they are
  // not 0; what is named above is as said there.
  std::optional<LlamaConfig> llama = {};
  // Or of BuildGpt.
  std::function<std::unique_ptr<Sequential>(const Scope&, const GptConfig&)>
      build = nullptr;
  AdamWConfig adamw;
  bool muon = false;  // in its place
  bool adafactor = false;
  Trace* trace = nullptr;
  StepWatch* watch = nullptr;
};

// The kinds of model that every property of a step is tested with.
inline constexpr const char* kModelKinds[] = {"gpt", "llama"};

inline constexpr DType kPrecisions[] = {DType::kF32, DType::kBF16};

// A precision, with what gradients of weights are kept in.
struct StepNumbers {
  DType dtype;
  bool bf16_gradients;
  friend std::ostream& operator<<(std::ostream& out,
                                  const StepNumbers& numbers) {
    return out << ToString(numbers.dtype)
               << (numbers.bf16_gradients ? ", bf16 gradients" : "");
  }
};
inline constexpr StepNumbers kNumbers[] = {
    {DType::kF32, false}, {DType::kBF16, false}, {DType::kBF16, true}};

// The options with a model of that kind, or of "moe": a gpt with 8 experts, two
// for each token, also as "moe capacity", which drops choices, and "moe
// prototypes", four for each token. A llama has everything that it may have.
RigOptions OfKind(const std::string& kind, RigOptions options);
// With this model, whose sizes are those of the options.
RigOptions OfMoe(const MoeConfig& c, RigOptions options);

class StepRig {
 public:
  static constexpr int64_t kVocab = 61;
  static constexpr int64_t kSeq = 12;
  static constexpr int64_t kDim = 24, kHeads = 4, kKvHeads = 2;

  // `comm` must outlive the rig.
  StepRig(Communicator& comm, const std::string& share,
          const RigOptions& options);

  // Of executors that are made from here on.
  RigOptions& options() { return options_; }
  // Another executor over the same parameters.
  absl::StatusOr<std::unique_ptr<Executor>> NewExecutor(
      const Planner& planner, const std::vector<bool>& recompute = {});

  // Goes on with other links, as a run does at a switch.
  void Switch(const std::string& share, StatePolicy policy);

  // The share of this rank's data place of batch number `index`: random tokens.
  HostBatch Batch(int64_t index) const;
  // Names of the tensors that are no links; those that this rank has.
  std::vector<std::string> Tensors() const;
  std::vector<std::string> TensorsHere() const;
  // Gradient of a logical tensor after a step: a sum over tokens and ranks.
  // Whole on every rank only without ZeRO.
  std::vector<float> Gradient(const std::string& tensor) const;
  // As layers see it, and as the optimizer does; the latter whole on every rank
  // only without ZeRO.
  std::vector<float> Weight(const std::string& tensor) const {
    return Read(tensor, Plane::kWeight);
  }
  std::vector<float> Master(const std::string& tensor) const {
    const int slab = store_->LocalSlabsOf(Find(tensor).slab).front();
    return Read(tensor, store_->master(slab));
  }

  // Neighbours in a logical tensor that this rank has, from number `first` on.
  struct Run {
    int64_t first = 0;
    std::vector<double> values;
  };
  // All of a tensor that is here. Of its gradient without ZeRO only.
  std::vector<Run> Runs(const std::string& tensor, Plane plane) const;

  // AdamW's moment m (0) or v (1); whole without ZeRO only.
  std::vector<float> Moment(const std::string& tensor, int which) const {
    return Read(tensor, which == 0 ? Plane::kState0 : Plane::kState1);
  }
  // [B, T, V] of all of this rank's sequences, computed layer by layer without
  // the executor.
  std::vector<float> Logits(const HostBatch& batch);

  Device& device() { return *device_; }
  ParamStore& store() { return *store_; }
  Executor& executor() { return *executor_; }
  Sequential& model() { return *model_; }

 private:
  Mesh MeshOf() const;
  std::vector<int> ChunksOf(int places) const;
  std::unique_ptr<ParamStore> MakeStore(const std::string& share);
  void MakeExecutor();
  std::vector<float> Read(const std::string& tensor, Plane plane) const;
  const LogicalTensor& Find(const std::string& tensor) const;

  Communicator& comm_;
  RigOptions options_;
  std::unique_ptr<Device> device_;
  ParamRegistry registry_;
  std::unique_ptr<Sequential> whole_model_;  // where model_ is some of it
  std::unique_ptr<Sequential> model_;
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<SlabOptimizer> optimizer_;
  std::unique_ptr<Communicator> network_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace delink::testing
