#include "framework/module/descriptor.h"

#include <algorithm>
#include <map>
#include <utility>

#include "framework/base/check.h"

namespace delink {
namespace {

// What lies in elements `range` of a local slab, of params[index], on `rank`.
void AddExtents(const LocalSlab& local, size_t index, Range range, int rank,
                int slab, Descriptor& extents) {
  int64_t offset = local.slab.params[index].offset;
  for (const Rect& rect : local.rects[index]) {
    const int64_t count = rect.elements();
    const Range here{std::clamp<int64_t>(range.begin - offset, 0, count),
                     std::clamp<int64_t>(range.end - offset, 0, count)};
    for (const Rect& piece : Cut(rect, here)) {
      const Extent whole{.rect = rect,
                         .rank = rank,
                         .slab = slab,
                         .offset = offset,
                         .pitch = rect.columns};
      extents.push_back(Part(whole, piece));
    }
    offset += count;
  }
}

// Takes `piece` out of all of `rects`.
void Remove(std::vector<Rect>& rects, const Rect& piece) {
  std::vector<Rect> rest;
  for (const Rect& rect : rects) {
    const std::vector<Rect> left = Without(rect, piece);
    rest.insert(rest.end(), left.begin(), left.end());
  }
  rects = std::move(rest);
}

}  // namespace

Extent Part(const Extent& extent, const Rect& rect) {
  DELINK_CHECK(Overlap(extent.rect, rect) == rect);
  Extent part = extent;
  part.rect = rect;
  part.offset += (rect.row - extent.rect.row) * extent.pitch +
                 (rect.column - extent.rect.column);
  return part;
}

Descriptor DescriptorOf(const Layout& layout, const LogicalTensor& tensor,
                        bool sharded) {
  Descriptor extents;
  const Range locals = layout.LocalSlabsOfLogical(tensor.slab);
  for (int64_t s = locals.begin; s < locals.end; ++s) {
    const int slab = static_cast<int>(s);
    const LocalSlab& local = layout.local_slabs()[static_cast<size_t>(s)];
    const auto at =
        std::find(local.params.begin(), local.params.end(), tensor.param);
    if (at == local.params.end()) continue;
    const auto index = static_cast<size_t>(at - local.params.begin());
    for (const int rank : *local.group) {
      const Range range =
          sharded ? layout.OwnedBy(slab, rank) : Range{0, local.slab.elements};
      AddExtents(local, index, range, rank, slab, extents);
    }
  }
  std::stable_sort(
      extents.begin(), extents.end(),
      [](const Extent& a, const Extent& b) { return a.rank < b.rank; });
  return extents;
}

std::vector<CopyStep> PlanCopy(const Descriptor& owners,
                               const Descriptor& before,
                               const Descriptor& after) {
  std::vector<CopyStep> steps;
  // Of what crosses the network: by owner's extent and rectangle, its step.
  std::map<std::pair<size_t, Rect>, size_t> shared;
  auto own = before.begin();  // of the rank at hand
  for (const Extent& want : after) {
    while (own != before.end() && own->rank < want.rank) ++own;
    std::vector<Rect> missing = {want.rect};
    for (auto have = own; have != before.end() && have->rank == want.rank;
         ++have) {
      const Rect both = Overlap(have->rect, want.rect);
      if (both.elements() == 0) continue;
      steps.push_back({Part(*have, both), {Part(want, both)}});
      Remove(missing, both);
    }
    for (size_t i = 0; i < owners.size() && !missing.empty(); ++i) {
      if (Overlap(owners[i].rect, want.rect).elements() == 0) continue;
      for (const Rect& rect : std::vector<Rect>(missing)) {
        const Rect both = Overlap(owners[i].rect, rect);
        if (both.elements() == 0) continue;
        const auto [at, fresh] = shared.try_emplace({i, both}, steps.size());
        if (fresh) steps.push_back({Part(owners[i], both), {}});
        steps[at->second].to.push_back(Part(want, both));
        Remove(missing, both);
      }
    }
    DELINK_CHECK(missing.empty()) << "an element that nobody owns";
  }
  return steps;
}

}  // namespace delink
