// The layers of a model that its store visits one after the other, forward
// only, dropout off: in memory are the weights and what one layer needs; of
// weights that are at home on the host the device has copies, as their turns
// come (streamed_weights.h).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/binder.h"
#include "framework/module/param_store.h"
#include "framework/module/sequential.h"
#include "framework/step/executor.h"
#include "framework/step/measure.h"
#include "framework/tensor/buffer.h"
#include "recipes/saved/forward_ranks.h"
#include "recipes/saved/streamed_weights.h"

namespace delink {

class ForwardPass {
 public:
  struct Options {
    BatchShape batch;
    // Whether Losses is to be called, or Loss.
    bool by_sequence = false;
    // Ranks that have the weights together, which all make the same calls;
    // their status() is asked for afterwards. Only those that count get losses
    // and scores. Outlives the pass; null: they are all here.
    ForwardRanks* ranks = nullptr;
  };
  // `store` holds the weights of `model`; both outlive the pass. A store with
  // weights at home on the host is used by one pass, or generator, at a time.
  // ResourceExhausted: the device has no memory for it.
  static absl::StatusOr<std::unique_ptr<ForwardPass>> Create(
      Sequential& model, ParamStore& store, const Options& options);

  // The sum over the counted targets of one micro-batch; of each of its
  // sequences.
  LossRecord Loss(const HostBatch& batch);
  std::vector<LossRecord> Losses(const HostBatch& batch);

  // What the model gives a target.
  struct TokenScore {
    double log_likelihood = 0;  // nats
    bool greedy = false;        // no token is likelier
  };
  // Of each counted target, in order. The logits of some tokens at a time come
  // to the host; what that takes besides is taken from the device and given
  // back, and running out of memory there is fatal.
  std::vector<TokenScore> Scores(const HostBatch& batch);

 private:
  ForwardPass(Sequential& model, ParamStore& store, const Options& options);
  absl::Status Allocate();
  // The input of the epilogue, [B, T, D].
  Tensor RunLayers(const HostBatch& batch);
  std::vector<LossRecord> Run(const HostBatch& batch, int64_t records);
  // Of tokens [first, first + count) of x [1, T, D]: [count, V].
  std::vector<double> Logits(const Tensor& x, int64_t first, int64_t count);
  VisitInputs Inputs(int64_t sequence) const;
  Tape::Env TapeEnv();
  // Points the parameters of the layer at its weights.
  void Bind(size_t place);
  Tensor OutputOf(size_t place) const;
  Tensor Visit(size_t place, const Tensor& input);
  void VisitLoss(const Tensor& input, int64_t sequence);

  Sequential& model_;
  ParamStore& store_;
  Binder binder_;
  Options options_;
  std::unique_ptr<Stream> own_stream_;  // where `ranks` has none
  Stream* stream_;
  std::vector<LayerPlan> layers_;  // by place
  VisitPlan loss_visits_;          // of the epilogue, on what is summed at once
  std::unique_ptr<StreamedWeights> weights_;
  Buffer workspace_, boundaries_[2], inputs_, targets_, positions_, samples_,
      losses_;
};

}  // namespace delink
