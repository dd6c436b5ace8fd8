// A gpt with other blocks.
#pragma once

#include <cstdint>
#include <memory>

#include "framework/module/sequential.h"
#include "layers/modules/embedding.h"
#include "layers/modules/lm_head.h"
#include "recipes/models/gpt_config.h"

namespace delink::testing {

template <typename Block>
std::unique_ptr<Sequential> BuildOf(const Scope& s, const GptConfig& c) {
  auto model = std::make_unique<Sequential>(s);
  model->Prologue<Embedding>(
      "embed", {.vocab = c.vocab, .dim = c.dim, .positions = c.max_seq});
  for (int64_t i = 0; i < c.layers; ++i) model->Block<Block>(c);
  model->Epilogue<LmHead>({.dim = c.dim,
                           .vocab = c.vocab,
                           .tied_to = c.tied ? "embed/token/weight" : ""});
  return model;
}

}  // namespace delink::testing
