// Layouts of random models over random meshes: with and without tensor and
// pipeline axes, shards and sharing. Tensors are a few elements, so that every
// one can be looked at.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "framework/module/descriptor.h"

namespace delink::testing {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int Below(int n) {
    return static_cast<int>(random_() % static_cast<uint64_t>(n));
  }
  int Between(int low, int high) { return low + Below(high - low + 1); }
  bool Maybe() { return Below(2) == 0; }

 private:
  std::mt19937_64 random_;
};

// Of grouped queries: those of keys and values are fewer than ranks may be.
inline constexpr int kHeads = 4;
inline constexpr int kHeadDim = 2;
inline constexpr int kExperts = 12;

// A part that is cut by rows and by columns, one that is not, stacked rows,
// experts, matrices and vectors in one parameter, exact ones, and extents that
// divide by nothing; and one that is cut by heads, if there are any.
inline void DeclareBlock(const Scope& block, int width, int kv_heads,
                         bool exact) {
  const Scope attention = (block / "attn").Part("attention");
  attention.Param("norm", {.shape = {width}, .exact = exact});
  attention.Param("qkv", {.shape = {width + 4, width},
                          .split = Split::kOut,
                          .stacked = {width, 3, 1}});
  attention.Param("out", {.shape = {width, width}, .split = Split::kIn});
  const Scope mlp = (block / "mlp").Part("mlp");
  mlp.Param("up", {.shape = {5, 3, width}, .split = Split::kOut});
  mlp.Param("bias", {.shape = {15}, .split = Split::kOut});
  mlp.Param("experts",
            {.shape = {kExperts, 2, width}, .split = Split::kExpert});
  mlp.Param("expert_bias", {.shape = {kExperts, width},
                            .vectors = true,
                            .split = Split::kExpert,
                            .exact = exact});
  mlp.Param(
      "gate",
      {.shape = {3, 22, width}, .split = Split::kOut, .stacked = {12, 10}});
  mlp.Param("gate_bias", {.shape = {3, 22},
                          .vectors = true,
                          .split = Split::kOut,
                          .stacked = {12, 10},
                          .exact = exact});
  mlp.Param("down", {.shape = {3, width, 11}, .split = Split::kIn});
  if (kv_heads == 0) return;
  const std::vector<int64_t> rows = {kHeads * kHeadDim, kv_heads * kHeadDim,
                                     kv_heads * kHeadDim};
  const Scope heads = (block / "heads").Part("attention");
  heads.Param("norm", {.shape = {kHeadDim}, .by_head = true});
  heads.Param("qkv", {.shape = {rows[0] + 2 * rows[1], width},
                      .split = Split::kOut,
                      .stacked = rows,
                      .unit = kHeadDim});
  heads.Param(
      "out",
      {.shape = {width, rows[0]}, .split = Split::kIn, .unit = kHeadDim});
}

struct Model {
  ParamRegistry registry;
  int blocks = 0;
  int kv_heads = 0;
};

// `exact`: some parameters are, beside others of their part.
inline void Declare(Model& model, Dice& dice, int widest = 9,
                    bool exact = true) {
  model.blocks = dice.Between(1, 4);
  model.kv_heads = dice.Below(3);
  const int width = dice.Between(1, widest);
  const Scope root(model.registry);
  const Scope embed = root.Layer(0, "embed").Part("embedding");
  embed.Param("weight",
              {.shape = {dice.Between(1, 30), width}, .split = Split::kOut});
  for (int i = 0; i < model.blocks; ++i) {
    DeclareBlock(root.Layer(i + 1, "blocks/" + std::to_string(i)), width,
                 model.kv_heads, exact);
  }
  const Scope tail = root.Layer(model.blocks + 1, "");
  tail.Param("norm", {.shape = {width}});
  (tail / "head").Link("embed/weight");
}

inline SharingMap AnySharing(const Model& model, Dice& dice) {
  SharingMap map;
  for (const char* part : {"attention", "mlp"}) {
    const int groups = dice.Between(1, model.blocks);
    std::vector<int>& leaders = map.leaders[part];
    for (int i = 0; i < model.blocks; ++i) leaders.push_back(i % groups);
  }
  return map;
}

// Data places that have the weights together: as many of each group with the
// same experts, or at most one. 0: all.
inline int AnyShard(Dice& dice, const Mesh& mesh) {
  const int shard = dice.Between(0, mesh.data);
  const int places = shard * mesh.tensor * mesh.context;
  const bool fits = shard > 0 && mesh.data % shard == 0 &&
                    (places <= mesh.expert || places % mesh.expert == 0);
  return fits ? shard : 0;
}

// Over at most `ranks`, of a model of so many layers, cut or not: along the
// tensor axis over divisors of `heads`, or any number.
inline Layout::Options AnyOptions(Dice& dice, int layers, int ranks,
                                  bool tensor = true, int heads = 0) {
  Layout::Options options;
  do {
    options.mesh = {.tensor = tensor ? dice.Between(1, 5) : 1,
                    .context = dice.Between(1, 2),
                    .data = dice.Between(1, 6),
                    .pipeline = dice.Between(1, 4)};
  } while (options.mesh.ranks() > ranks || heads % options.mesh.tensor != 0);
  // Of kExperts.
  for (const int expert : {3, 2, 4}) {
    const int places = options.mesh.ranks() / options.mesh.pipeline;
    if (tensor && places % expert == 0 && dice.Maybe()) {
      options.mesh.expert = expert;
    }
  }
  for (int i = 0; i < kMeshAxes; ++i) {
    std::swap(options.mesh.order[static_cast<size_t>(i)],
              options.mesh.order[static_cast<size_t>(dice.Between(i, 3))]);
  }
  if (dice.Maybe()) {
    const int turns = dice.Between(1, 2), stages = options.mesh.pipeline;
    const int chunks = stages > 1 ? stages * turns : 1;
    for (int layer = 0; layer < layers; ++layer) {
      options.chunks.push_back(dice.Below(chunks));
    }
    std::sort(options.chunks.begin(), options.chunks.end());
  }
  options.zero = dice.Below(4);
  if (options.zero == 3) options.shard = AnyShard(dice, options.mesh);
  options.whole_tensors = static_cast<WholeTensors>(dice.Below(3));
  options.sequence = dice.Maybe();
  return options;
}

inline Layout AnyLayout(const Model& model, Dice& dice, int ranks = 64,
                        bool tensor = true) {
  const Layout::Options options = AnyOptions(
      dice, model.blocks + 2, ranks, tensor, model.kv_heads > 0 ? kHeads : 0);
  return Layout::Create(model.registry, model.blocks, AnySharing(model, dice),
                        options);
}

// A tensor's name in its layer: those of two blocks have one shape.
inline std::string LocalName(const std::string& name) {
  const std::string block = "blocks/";
  if (name.substr(0, block.size()) != block) return name;
  return name.substr(name.find('/', block.size()));
}

// Calls visit(row, column, offset) for the elements of an extent.
template <typename Visit>
inline void ForEachElement(const Extent& extent, Visit visit) {
  for (int64_t r = 0; r < extent.rect.rows; ++r) {
    for (int64_t c = 0; c < extent.rect.columns; ++c) {
      visit(extent.rect.row + r, extent.rect.column + c,
            extent.offset + r * extent.pitch + c);
    }
  }
}

}  // namespace delink::testing
