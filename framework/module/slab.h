// Slabs: one contiguous piece of parameters, the unit of sharing, sharding,
// reducing, moving, updating and saving.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/module/scope.h"
#include "framework/module/sharing_map.h"

namespace delink {

// Parameters start on cache lines, whatever their element type.
inline constexpr int64_t kParamAlignment = 64;  // elements

// Slab::block of a slab of `elements` elements, so that it has at most 1024
// blocks; or of one of `pieces` (at most 1024) that a slab is cut into, so that
// all pieces have at most 1024 blocks together.
int64_t BlockSize(int64_t elements, int pieces = 1);

// A parameter's place in its slab.
struct SlabParam {
  int decl = 0;        // of the leader, in ParamRegistry
  int64_t offset = 0;  // elements from the slab's start
  int64_t elements = 0;
};

// One part of one block (or of the prologue or epilogue) and of all blocks that
// share it. All slabs of a part have the same layout.
struct Slab {
  std::string name;  // "blocks/0/attention": leader and part
  std::string part;
  int leader = 0;           // layer whose names the parameters have
  std::vector<int> layers;  // that use it, ascending; [0] is the leader
  std::vector<SlabParam> params;
  int64_t elements = 0;  // with padding between and after parameters
  // Shards and sums are cut at multiples of this many elements. It depends on
  // the slab and its cuts alone, so that sums are the same for every number of
  // data ranks and every owner.
  int64_t block = 0;
  // Of a local slab (layout.h): all its parameters are ParamSpec::exact, or
  // none is.
  bool exact = false;

  int64_t blocks() const { return (elements + block - 1) / block; }
  // Elements of one rank's shard of `ranks`; the last shards may be shorter or
  // empty (ShardRange). Planes that are all-gathered have room for
  // ShardElements * ranks elements.
  int64_t ShardElements(int ranks) const {
    return (blocks() + ranks - 1) / ranks * block;
  }
};

struct Range {
  int64_t begin = 0, end = 0;  // elements
  int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// The shard of `slab` that `rank` of `ranks` has. Every element is in one.
inline Range ShardRange(const Slab& slab, int rank, int ranks) {
  const int64_t shard = slab.ShardElements(ranks);
  return {std::min(shard * rank, slab.elements),
          std::min(shard * (rank + 1), slab.elements)};
}

// Lays out the parameters of all layers that are visited under a sharing map.
// The prologue is layer 0; blocks are layers 1 .. blocks. Slabs come in order
// of their leader layer.
std::vector<Slab> LayOutSlabs(const ParamRegistry& registry, int blocks,
                              const SharingMap& sharing);

// A logical tensor: the unit of checkpoints and tools.
struct LogicalTensor {
  std::string name;        // "blocks/7/attn/qkv/weight"
  std::string link;        // the name of the tensor it is a link to, or empty
  bool permanent = false;  // a link that delinking keeps (a tied head)
  Shape shape;
  bool decay = true;
  int slab = 0;
  size_t param = 0;    // in Slab::params
  int64_t offset = 0;  // elements from the slab's start
};

// Every logical tensor of the layers that are visited, links after what they
// link to.
std::vector<LogicalTensor> LogicalTensors(const ParamRegistry& registry,
                                          int blocks, const SharingMap& sharing,
                                          const std::vector<Slab>& slabs);

}  // namespace delink
