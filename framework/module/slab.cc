#include "framework/module/slab.h"

#include <algorithm>
#include <map>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/device/backend.h"

namespace delink {
namespace {

// About this many blocks a slab: enough for even shards over many ranks, few
// enough that a sum for each is cheap to exchange.
constexpr int64_t kBlocksPerSlab = 1024;
constexpr int64_t kMinBlock = 256;  // elements

// The layer whose slab (layer, part) uses.
int LeaderLayer(int layer, const std::string& part, int blocks,
                const SharingMap& sharing) {
  const bool is_block = layer >= 1 && layer <= blocks;
  return is_block ? sharing.Leader(part, layer - 1) + 1 : layer;
}

std::string LayerOf(const ParamDecl& decl) {
  if (decl.name == decl.local) return "";
  return decl.name.substr(0, decl.name.size() - decl.local.size() - 1);
}

}  // namespace

int64_t BlockSize(int64_t elements, int pieces) {
  DELINK_CHECK_LE(pieces, kBlocksPerSlab);
  const int64_t blocks = kBlocksPerSlab / pieces;
  if (pieces > 1) {
    // Few blocks are large, and planes are padded to whole ones.
    return std::max(AlignUp((elements + blocks - 1) / blocks, kMinBlock),
                    kMinBlock);
  }
  int64_t block = kMinBlock;
  while (block * blocks < elements) block *= 2;
  return block;
}

std::vector<Slab> LayOutSlabs(const ParamRegistry& registry, int blocks,
                              const SharingMap& sharing) {
  std::map<std::pair<int, std::string>, Slab> slabs;
  for (size_t i = 0; i < registry.decls.size(); ++i) {
    const ParamDecl& decl = registry.decls[i];
    if (decl.link >= 0 || !sharing.VisitsLayer(decl.layer, blocks)) continue;
    if (LeaderLayer(decl.layer, decl.part, blocks, sharing) != decl.layer) {
      continue;
    }
    Slab& slab = slabs[{decl.layer, decl.part}];
    if (slab.params.empty()) {
      const std::string layer = LayerOf(decl);
      slab.name = layer.empty() ? decl.part : layer + "/" + decl.part;
      slab.part = decl.part;
      slab.leader = decl.layer;
    }
    const int64_t elements = decl.spec.shape.elements();
    slab.params.push_back({static_cast<int>(i), slab.elements, elements});
    slab.elements += AlignUp(elements, kParamAlignment);
  }
  std::map<std::pair<int, std::string>, std::vector<int>> users;
  for (const ParamDecl& decl : registry.decls) {
    if (!sharing.VisitsLayer(decl.layer, blocks)) continue;
    const ParamDecl& target = decl.link >= 0 ? registry.decl(decl.link) : decl;
    std::vector<int>& layers = users[{
        LeaderLayer(target.layer, target.part, blocks, sharing), target.part}];
    if (layers.empty() || layers.back() != decl.layer) {
      layers.push_back(decl.layer);
    }
  }
  std::vector<Slab> result;
  for (auto& [key, slab] : slabs) {
    slab.layers = users[key];
    std::sort(slab.layers.begin(), slab.layers.end());
    slab.block = BlockSize(slab.elements);
    result.push_back(std::move(slab));
  }
  return result;
}

std::vector<LogicalTensor> LogicalTensors(const ParamRegistry& registry,
                                          int blocks, const SharingMap& sharing,
                                          const std::vector<Slab>& slabs) {
  std::map<std::string, std::pair<int, size_t>> place;  // slab, parameter
  for (size_t s = 0; s < slabs.size(); ++s) {
    for (size_t p = 0; p < slabs[s].params.size(); ++p) {
      const auto decl = static_cast<size_t>(slabs[s].params[p].decl);
      place[registry.decls[decl].name] = {static_cast<int>(s), p};
    }
  }
  std::vector<LogicalTensor> tensors;
  for (const ParamDecl& decl : registry.decls) {
    if (!sharing.VisitsLayer(decl.layer, blocks)) continue;
    LogicalTensor tensor{
        .name = decl.name, .shape = decl.spec.shape, .decay = decl.spec.decay};
    std::string owner = decl.name;
    if (decl.link >= 0) {
      owner = registry.decl(decl.link).name;
      tensor.permanent = true;
    } else {
      const int leader = LeaderLayer(decl.layer, decl.part, blocks, sharing);
      if (leader != decl.layer) {
        owner = "blocks/" + std::to_string(leader - 1) + "/" + decl.local;
      }
    }
    if (owner != decl.name) tensor.link = owner;
    const auto at = place.find(owner);
    DELINK_CHECK(at != place.end())
        << decl.name << " has no counterpart " << owner
        << ": layers that share a part declare the same parameters";
    tensor.slab = at->second.first;
    tensor.param = at->second.second;
    tensor.offset = At(slabs, tensor.slab).params[tensor.param].offset;
    tensors.push_back(std::move(tensor));
  }
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const LogicalTensor& a, const LogicalTensor& b) {
                     return a.link.empty() && !b.link.empty();
                   });
  return tensors;
}

}  // namespace delink
