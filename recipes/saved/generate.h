// Generation: a model continues a prompt, token by token. A layer whose ops all
// work so (OpRecord::by_token) gets the new tokens alone and has its states, of
// attention the keys and values that it has seen. Any other layer is computed
// from the first token on for every new one; those around it are not.
//
// One sequence at a time. What a visit needs besides the caches is taken from
// the device and given back; running out of memory is fatal. Of weights that
// are at home on the host the device has copies, as their turns come
// (streamed_weights.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "framework/module/binder.h"
#include "framework/module/param_store.h"
#include "framework/module/sequential.h"
#include "framework/tensor/buffer.h"
#include "recipes/saved/forward_ranks.h"
#include "recipes/saved/sampling.h"
#include "recipes/saved/streamed_weights.h"

namespace delink {

class Generator {
 public:
  struct Options {
    SamplingOptions sampling;
    uint64_t seed = 1;
    int64_t positions = 0;  // that the model has
    // Only ids below it are drawn, of a vocabulary that is padded with ids that
    // mean nothing; 0: all.
    int64_t vocab = 0;
    // Ranks that have the weights together, which all make the same calls and
    // get the same tokens. An error is fatal. Outlives the generator; null: all
    // weights are here.
    ForwardRanks* ranks = nullptr;
  };
  // `store` holds the weights of `model`; both outlive the generator. The same
  // prompt, weights and options give the same tokens. A store with weights at
  // home on the host is used by one generator, or forward pass, at a time.
  Generator(Sequential& model, ParamStore& store, const Options& options);
  ~Generator();

  // Begins anew after `tokens`, at least one. When the context is full, the
  // newer half of it goes on.
  void Prompt(std::span<const int32_t> tokens);
  // Draws the next token and appends it.
  int32_t Next();
  // What Next will draw from: one number for each token that may be drawn.
  const std::vector<double>& Logits();

 private:
  struct Layer {
    VisitStates states;
    // Not by token: then its inputs so far, in `inputs`, and no states.
    bool recomputed = false;
    Buffer inputs;
  };
  // What a layer has made.
  struct Output {
    Buffer memory;
    Tensor value;
    bool by_token = false;
  };
  void FeedWaiting();
  bool Has(size_t place) const {
    return options_.ranks == nullptr || options_.ranks->Has(place);
  }
  // Where the output of a layer that other ranks have comes to.
  Output Elsewhere(int64_t tokens);
  // The last layer's output as numbers, on all ranks.
  void TakeLogits(const Tensor& x);
  void Feed(std::span<const int32_t> tokens);
  // Layers are counted by place (Layout::visited).
  // The outputs of a layer for the tokens from fed_ on, whose inputs are x; of
  // the last layer those that it has for the last token at least.
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
  std::unique_ptr<Stream> own_stream_;  // where `ranks` has none
  Stream* stream_;
  std::unique_ptr<StreamedWeights> weights_;
  int64_t width_ = 0;  // of the residual stream, where `ranks` hand it on
  std::vector<Layer> layers_;     // by place
  std::vector<int32_t> context_;  // tokens; the layers know the first fed_
  size_t fed_ = 0;
  uint64_t drawn_ = 0;
  std::vector<double> logits_;
};

}  // namespace delink
