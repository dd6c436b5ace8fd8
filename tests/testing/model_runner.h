// Runs a Sequential layer by layer without an executor: losses and gradients of
// a small model on the CPU, over either kind of visit memory, with or without
// recompute.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/module/binder.h"
#include "framework/module/param_store.h"
#include "framework/module/sequential.h"
#include "tests/testing/visit_runner.h"

namespace delink::testing {

class ModelRunner {
 public:
  using Build = std::function<std::unique_ptr<Sequential>(const Scope&)>;
  struct Options {
    DType dtype = DType::kF64;
    MemoryMode memory = MemoryMode::kHeap;
    bool recompute = false;
    // Backwards of blocks in two halves: the second ones come when all blocks
    // have had the first.
    bool halves = false;
    bool remake = true;           // VisitInputs::remake
    bool bf16_gradients = false;  // ParamStore::Options
    SharingMap sharing;
    uint64_t seed = 1;
  };
  struct Batch {
    int64_t B = 0, T = 0;
    std::vector<int32_t> tokens;   // [B, T]
    std::vector<int32_t> targets;  // [B, T]
    std::vector<int64_t> samples;  // [B]
    // [B, T], the place of each token in its document; or none.
    std::vector<int32_t> positions;
  };
  ModelRunner(const Build& build, const Batch& batch, const Options& options);
  ~ModelRunner();

  // Loss of the batch; dropout as in training when `training`.
  LossRecord Loss(bool training = true);
  // Adds up `times` forward and backward passes; returns the last loss.
  LossRecord Gradients(int times = 1);
  // [B, T, V], dropout off.
  std::vector<double> Logits();

  ParamStore& store() { return *store_; }
  Device& device() { return *device_; }
  // Tensors that are not links to others.
  std::vector<LogicalTensor> tensors() const;
  std::vector<double> Values(const LogicalTensor& tensor, Plane plane) const;
  void SetWeight(const LogicalTensor& tensor,
                 const std::vector<double>& values);

 private:
  Tensor ActivationOf(int layer);
  void BindWithGradients(int layer);
  void ForwardLayer(int layer, Phase phase, bool again = false);
  void BackwardLayer(int layer);
  void BackwardInput(int layer);
  void BackwardWeight(int layer);
  void Finish(int layer);
  VisitInputs Inputs(bool training);
  void RunForward(Phase phase);

  Options options_;
  Batch batch_;
  std::unique_ptr<Device> device_;
  ParamRegistry registry_;
  std::unique_ptr<Sequential> model_;
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<Binder> binder_;
  RngKey key_;
  LossRecord record_;
  int64_t width_ = 0;
  std::vector<std::unique_ptr<VisitRunner>> visits_;  // by layer
  std::vector<std::vector<double>> activations_;      // by layer: its output
  std::vector<double> boundary_;                      // its gradient
  std::vector<bool> written_;                         // by slab
};

}  // namespace delink::testing
