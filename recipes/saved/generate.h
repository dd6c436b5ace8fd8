// Generation: a model continues a prompt, token by token. A layer whose ops all
// work token by token (OpRecord::by_token) computes only the new tokens and
// keeps states; attention keeps its keys and values. Any other layer recomputes
// all tokens for every new one; the layers around it do not.
//
// One sequence at a time. A visit's temporary device memory is freed
// afterwards; running out of memory is fatal. Host-resident and sharded weights
// are prefetched to the device (streamed_weights.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "framework/module/binder.h"
#include "framework/module/param_store.h"
#include "framework/module/sequential.h"
#include "framework/tensor/buffer.h"
#include "offload/inference/streamed_weights.h"
#include "parallel/inference/forward_ranks.h"
#include "recipes/saved/sampling.h"

namespace delink {

class Generator {
 public:
  struct Options {
    SamplingOptions sampling;
    uint64_t seed = 1;
    int64_t positions = 0;  // the model's context
    // Only ids below it are drawn, because the model's vocabulary may be padded
    // with unused ids; 0: all.
    int64_t vocab = 0;
    // Ranks over which the weights are sharded. All make the same calls and get
    // the same tokens. An error is fatal. Outlives the generator. Null: all
    // weights are on this rank.
    ForwardRanks* ranks = nullptr;
  };
  // `store` holds the weights of `model`; both outlive the generator. The same
  // prompt, weights and options give the same tokens. A store with
  // host-resident or sharded weights can be used by only one generator or
  // forward pass at a time.
  Generator(Sequential& model, ParamStore& store, const Options& options);
  ~Generator();

  // Starts again with `tokens`, at least one. When the context is full, its
  // older half is dropped.
  void Prompt(std::span<const int32_t> tokens);
  // Draws the next token and appends it.
  int32_t Next();
  // The logits that Next will draw from: one for each token that may be drawn.
  const std::vector<double>& Logits();

 private:
  struct Layer {
    VisitStates states;
    // True if not by token; then `inputs` holds all inputs so far.
    bool recomputed = false;
    Buffer inputs;
  };
  // A layer's output.
  struct Output {
    Buffer memory;
    Tensor value;
    bool by_token = false;
  };
  void FeedWaiting();
  bool Has(size_t place) const {
    return options_.ranks == nullptr || options_.ranks->Has(place);
  }
  // A buffer that receives the output of another rank's layer.
  Output Elsewhere(int64_t tokens);
  // Copies the last layer's output to the host, on all ranks.
  void TakeLogits(const Tensor& x);
  void Feed(std::span<const int32_t> tokens);
  // Layers are counted by place (Layout::visited). The outputs of a layer for
  // the tokens from fed_ on, whose inputs are x. For the last layer at least
  // the last token's.
  Output Run(size_t place, const Tensor& x);
  Output Visit(size_t place, const Tensor& x, int64_t first_position,
               VisitStates* states);
  // Adds x to the inputs of a layer and returns all of them.
  Tensor Remember(Layer& layer, const Tensor& x);

  Sequential& model_;
  ParamStore& store_;
  Binder binder_;
  Options options_;
  RngKey key_;
  std::unique_ptr<Stream> own_stream_;  // if there are no `ranks`
  Stream* stream_;
  std::unique_ptr<StreamedWeights> weights_;
  int64_t width_ = 0;          // of the residual stream, if `ranks` pass it on
  std::vector<Layer> layers_;  // by place
  std::vector<int32_t> context_;  // tokens; the layers know the first fed_
  size_t fed_ = 0;
  uint64_t drawn_ = 0;
  std::vector<double> logits_;
};

}  // namespace delink
