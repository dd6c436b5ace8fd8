// Generation: a model continues a prompt, token by token, with a cache of the
// keys and values it has seen.
//
// One sequence at a time. What a visit needs besides the caches is taken from
// the device and given back; running out of memory is fatal.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "framework/module/param_store.h"
#include "framework/module/sequential.h"
#include "layers/modules/attention.h"
#include "recipes/run/sampling.h"

namespace delink {

class Generator {
 public:
  struct Options {
    SamplingOptions sampling;
    uint64_t seed = 1;
    int64_t positions = 0;  // that the model has
  };
  // `store` holds the weights of `model`; both outlive the generator. The same
  // prompt, weights and options give the same tokens.
  Generator(Sequential& model, ParamStore& store, const Options& options);
  ~Generator();

  // Begins anew after `tokens`, at least one. When the context is full, the
  // newer half of it goes on.
  void Prompt(std::span<const int32_t> tokens);
  // Draws the next token and appends it.
  int32_t Next();
  // What Next will draw from: one number for each token of the vocabulary.
  const std::vector<double>& Logits();

 private:
  void FeedWaiting();
  void Feed(std::span<const int32_t> tokens);
  // One layer on x, whose memory goes to the result's.
  Buffer Visit(int layer, const Tensor& x, Tensor* y);

  Sequential& model_;
  ParamStore& store_;
  Options options_;
  RngKey key_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<KvCache>> caches_;  // by layer
  std::vector<int32_t> context_;  // tokens; the first fed_ are in the caches
  size_t fed_ = 0;
  uint64_t drawn_ = 0;
  std::vector<double> logits_;
};

}  // namespace delink
