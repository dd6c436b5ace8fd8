// A forward pass over the layers that the store visits, one after the other,
// with dropout off. Memory holds the weights and what one layer needs.
// Host-resident and sharded weights are prefetched to the device
// (streamed_weights.h).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/binder.h"
#include "framework/module/param_store.h"
#include "framework/module/sequential.h"
#include "framework/step/engine/executor.h"
#include "framework/step/plan/measure.h"
#include "framework/tensor/buffer.h"
#include "offload/inference/streamed_weights.h"
#include "parallel/inference/forward_ranks.h"

namespace delink {

class ForwardPass {
 public:
  struct Options {
    BatchShape batch;
    // Whether Losses will be called, instead of Loss.
    bool by_sequence = false;
    // Ranks over which the weights are sharded. All make the same calls and
    // check status() afterwards. Only ranks that count get losses and scores.
    // Ranks that gather weights make and destroy their passes together.
    // Outlives the pass. Null: all weights are on this rank.
    ForwardRanks* ranks = nullptr;
  };
  // `store` holds the weights of `model`; both outlive the pass. A store with
  // host-resident or sharded weights can be used by only one pass or generator
  // at a time.
  // ResourceExhausted: the device has too little memory.
  static absl::StatusOr<std::unique_ptr<ForwardPass>> Create(
      Sequential& model, ParamStore& store, const Options& options);

  // The summed loss over the counted targets of a micro-batch, or of each of
  // its sequences.
  LossRecord Loss(const HostBatch& batch);
  std::vector<LossRecord> Losses(const HostBatch& batch);

  // The model's score of a target.
  struct TokenScore {
    double log_likelihood = 0;  // nats
    bool greedy = false;        // no token is likelier
  };
  // Scores of each counted target, in order. Copies the logits of some tokens
  // at a time to the host. Its temporary device memory is freed afterwards;
  // running out of it is fatal.
  std::vector<TokenScore> Scores(const HostBatch& batch);

 private:
  ForwardPass(Sequential& model, ParamStore& store, const Options& options);
  absl::Status Allocate();
  GatherLane* gathers() const {
    return options_.ranks == nullptr ? nullptr : options_.ranks->gathers();
  }
  // The input of the epilogue, [B, T, D].
  Tensor RunLayers(const HostBatch& batch);
  std::vector<LossRecord> Run(const HostBatch& batch, int64_t records);
  // The logits [count, V] of tokens [first, first + count) of x [1, T, D].
  std::vector<double> Logits(const Tensor& x, int64_t first, int64_t count);
  VisitInputs Inputs(int64_t sequence) const;
  Tape::Env TapeEnv();
  // Binds the layer's parameters to its weights.
  void Bind(size_t place);
  Tensor OutputOf(size_t place) const;
  Tensor Visit(size_t place, const Tensor& input);
  void VisitLoss(const Tensor& input, int64_t sequence);

  Sequential& model_;
  ParamStore& store_;
  Binder binder_;
  Options options_;
  std::unique_ptr<Stream> own_stream_;  // if there are no `ranks`
  Stream* stream_;
  std::vector<LayerPlan> layers_;  // by place
  VisitPlan loss_visits_;          // of the epilogue, for one record
  std::unique_ptr<StreamedWeights> weights_;
  Buffer workspace_, boundaries_[2], inputs_, targets_, positions_, samples_,
      counted_targets_, losses_;
  int64_t loaded_counted_ = 0;  // its copy may be under way
};

}  // namespace delink
