// Sequential: a model as a sequence of layers (a prologue, blocks and an
// epilogue). It knows nothing of execution order, ranks, memory or sharing.
//
//   ParamRegistry registry;
//   Sequential model{Scope(registry)};
//   model.Prologue<Embedding>("embed", {.vocab = c.vocab, .dim = c.dim});
//   for (int64_t i = 0; i < c.layers; ++i) model.Block<GptBlock>(c);
//   model.Epilogue<LmHead>({.dim = c.dim, .vocab = c.vocab});
//
// The prologue takes token ids [B, T] i32 to [B, T, D]; blocks keep the shape;
// the epilogue takes [B, T, D] to a loss or to logits.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/module/module.h"
#include "framework/module/scope.h"

namespace delink {

class Sequential {
 public:
  explicit Sequential(const Scope& scope) : scope_(scope) {}

  template <typename M>
  void Prologue(std::string_view name, const typename M::Config& config) {
    DELINK_CHECK(layers_.empty()) << "the prologue comes first";
    Add<M>(std::string(name), config);
  }
  // Named blocks/0, blocks/1, ...; sharing links blocks.
  template <typename M>
  void Block(const typename M::Config& config) {
    DELINK_CHECK(!layers_.empty() && epilogue_ == nullptr);
    Add<M>("blocks/" + std::to_string(blocks()), config);
  }
  // Names its parameters from the root.
  template <typename M>
  void Epilogue(const typename M::Config& config) {
    DELINK_CHECK(!layers_.empty() && epilogue_ == nullptr);
    auto module = std::make_unique<M>(
        scope_.Layer(static_cast<int>(layers_.size()), ""), config);
    epilogue_ = module.get();
    layers_.push_back({"head", std::move(module)});
  }

  // Prologue, blocks and epilogue: layer 0, 1 .. blocks(), blocks() + 1.
  int layers() const { return static_cast<int>(layers_.size()); }
  int blocks() const {
    return static_cast<int>(layers_.size()) - 1 - (epilogue_ != nullptr);
  }
  Module& layer(int i) const { return *layers_[i].module; }
  EpilogueModule& epilogue() const { return *epilogue_; }
  // "embed", "blocks/0", ..., "head": for messages and traces.
  const std::string& layer_name(int i) const { return layers_[i].name; }

 private:
  struct Entry {
    std::string name;
    std::unique_ptr<Module> module;
  };
  template <typename M>
  void Add(const std::string& name, const typename M::Config& config) {
    auto module = std::make_unique<M>(
        scope_.Layer(static_cast<int>(layers_.size()), name), config);
    layers_.push_back({name, std::move(module)});
  }

  Scope scope_;
  std::vector<Entry> layers_;
  EpilogueModule* epilogue_ = nullptr;  // in layers_
};

}  // namespace delink
