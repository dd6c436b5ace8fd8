#include "framework/module/descriptor.h"

#include <algorithm>

#include "framework/base/check.h"

namespace delink {

Descriptor DescriptorOf(const LogicalTensor& tensor, const Slab& slab,
                        int ranks, bool sharded, int owner) {
  const int64_t elements = tensor.shape.elements();
  DELINK_CHECK_LE(tensor.offset + elements, slab.elements);
  Descriptor descriptor;
  if (elements == 0) return descriptor;
  if (!sharded || owner != kNoOwner) {
    descriptor.extents.push_back({.begin = 0,
                                  .count = elements,
                                  .rank = sharded ? owner : kEveryRank,
                                  .slab = tensor.slab,
                                  .offset = tensor.offset});
    return descriptor;
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const Range shard = ShardRange(slab, rank, ranks);
    const int64_t begin = std::max(shard.begin, tensor.offset);
    const int64_t end = std::min(shard.end, tensor.offset + elements);
    if (begin >= end) continue;
    descriptor.extents.push_back({.begin = begin - tensor.offset,
                                  .count = end - begin,
                                  .rank = rank,
                                  .slab = tensor.slab,
                                  .offset = begin});
  }
  return descriptor;
}

std::vector<CopyStep> PlanCopy(const Descriptor& from, const Descriptor& to) {
  DELINK_CHECK_EQ(from.elements(), to.elements());
  std::vector<CopyStep> steps;
  size_t i = 0, j = 0;
  int64_t at = 0;
  while (at < from.elements()) {
    const Extent& a = from.extents[i];
    const Extent& b = to.extents[j];
    const int64_t a_end = a.begin + a.count;
    const int64_t b_end = b.begin + b.count;
    const int64_t end = std::min(a_end, b_end);
    steps.push_back({.begin = at,
                     .count = end - at,
                     .from_rank = a.rank,
                     .from_slab = a.slab,
                     .from_offset = a.offset + (at - a.begin),
                     .to_rank = b.rank,
                     .to_slab = b.slab,
                     .to_offset = b.offset + (at - b.begin)});
    at = end;
    if (a_end == end) ++i;
    if (b_end == end) ++j;
  }
  return steps;
}

}  // namespace delink
