// A model whose parameters tensor parallelism cuts, and layouts of it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "framework/sharing/resolve.h"
#include "tests/framework/module/toy_model.h"

namespace delink::testing {

inline constexpr int kCutBlocks = 6;
inline constexpr int kCutHead = 2;  // 12 heads, 2 of keys and values

// Parameters that are cut by rows, by columns and at heads, of which there are
// fewer of keys and values than ranks may be; and some that are not. `scale`:
// how many times as large those of the MLP are.
inline void DeclareCut(ParamRegistry& registry, int64_t scale = 1) {
  const Scope root(registry);
  const Init normal = Init::Normal(1);
  root.Layer(0, "embed")
      .Part("embedding")
      .Param("weight",
             {.shape = {29, 7}, .init = normal, .split = Split::kOut});
  for (int i = 0; i < kCutBlocks; ++i) {
    const Scope block = root.Layer(i + 1, "blocks/" + std::to_string(i));
    const Scope attention = (block / "attn").Part("attention");
    attention.Param("norm", {.shape = {7}, .init = Init::Ones()});
    attention.Param("qkv", {.shape = {13, 7},
                            .init = normal,
                            .split = Split::kOut,
                            .stacked = {7, 5, 1}});
    attention.Param("out",
                    {.shape = {7, 90}, .init = normal, .split = Split::kIn});
    const Scope heads = (block / "heads").Part("attention");
    heads.Param("norm", {.shape = {2}, .init = normal, .by_head = true});
    heads.Param("qkv", {.shape = {32, 7},
                        .init = normal,
                        .split = Split::kOut,
                        .stacked = {24, 4, 4},
                        .unit = kCutHead});
    heads.Param("out", {.shape = {7, 24},
                        .init = normal,
                        .split = Split::kIn,
                        .unit = kCutHead});
    const Scope mlp = (block / "mlp").Part("mlp");
    mlp.Param(
        "up",
        {.shape = {5, 3, 70 * scale}, .init = normal, .split = Split::kOut});
    mlp.Param("bias", {.shape = {5, 3},
                       .vectors = true,
                       .init = normal,
                       .split = Split::kOut});
    mlp.Param(
        "down",
        {.shape = {5, 70 * scale, 3}, .init = normal, .split = Split::kIn});
  }
  const Scope tail = root.Layer(kCutBlocks + 1, "");
  tail.Param("norm", {.shape = {7}, .init = normal});
  (tail / "head").Link("embed/weight");
}

inline SharingMap CutSharing(const ParamRegistry& registry,
                             const std::string& text) {
  return ResolveSharing(*ParseShareSpec(text), registry, kCutBlocks).value();
}

inline std::unique_ptr<ParamStore> CutStore(
    Device& device, const ParamRegistry& registry, const std::string& share,
    int rank, const Layout::Options& options,
    std::vector<StateSpec> states = TwoMoments()) {
  return ParamStore::Create(
             device,
             Layout::Create(registry, kCutBlocks, CutSharing(registry, share),
                            options),
             rank, {.states = std::move(states)})
      .value();
}

class AnyOf {
 public:
  explicit AnyOf(uint64_t seed) : random_(seed) {}
  int operator()(std::initializer_list<int> of) {
    return of.begin()[random_() % of.size()];
  }
  Layout::Options LayoutOf(int ranks) {
    AnyOf& any = *this;
    Layout::Options options;
    do {
      options.mesh = {.tensor = any({1, 2, 4}),
                      .context = any({1, 2}),
                      .data = any({1, 2, 3, 4}),
                      .pipeline = any({1, 2, 3})};
    } while (options.mesh.ranks() != ranks);
    options.zero = any({0, 1});
    options.sequence = any({0, 1}) == 1;
    options.whole_tensors = static_cast<WholeTensors>(any({0, 1, 2}));
    return options;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace delink::testing
