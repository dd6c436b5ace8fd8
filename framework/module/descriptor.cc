#include "framework/module/descriptor.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/module/state_layout.h"

namespace delink {
namespace {

// Adds the extents of params[index] that lie in elements `range` of a local
// slab, on `rank`.
void AddExtents(const LocalSlab& local, size_t index, Range range, int rank,
                int slab, Descriptor& extents) {
  const int64_t first = local.slab.params[index].offset;
  int64_t offset = 0;
  for (const Rect& rect : local.rects[index]) {
    const int64_t count = rect.elements();
    const Range here{
        std::clamp<int64_t>(range.begin - first - offset, 0, count),
        std::clamp<int64_t>(range.end - first - offset, 0, count)};
    for (const Rect& piece : Cut(rect, here)) {
      const Extent whole{.rect = rect,
                         .rank = rank,
                         .slab = slab,
                         .param = index,
                         .offset = offset,
                         .pitch = rect.columns};
      extents.push_back(Part(whole, piece));
    }
    offset += count;
  }
}

// The same for statistics: all of them are with the first element that the slab
// has of the parameter.
void AddStatistics(const LocalSlab& local, size_t index,
                   const std::vector<Rect>& statistics, Range range, int rank,
                   int slab, Descriptor& extents) {
  const SlabParam& param = local.slab.params[index];
  const bool here = param.elements > 0 && range.begin <= param.offset &&
                    param.offset < range.end;
  if (!here) return;
  int64_t offset = 0;
  for (const Rect& rect : statistics) {
    if (rect.elements() == 0) continue;
    extents.push_back({.rect = rect,
                       .rank = rank,
                       .slab = slab,
                       .param = index,
                       .offset = offset,
                       .pitch = rect.columns});
    offset += rect.elements();
  }
}

// Removes `piece` from all of `rects`.
void Remove(std::vector<Rect>& rects, const Rect& piece) {
  std::vector<Rect> rest;
  for (const Rect& rect : rects) {
    const std::vector<Rect> left = Without(rect, piece);
    rest.insert(rest.end(), left.begin(), left.end());
  }
  rects = std::move(rest);
}

// A piece that a rank wants of a tensor. No two pieces overlap; the extents of
// `places` contain the piece.
struct WantedPiece {
  Rect rect;
  std::vector<CopyStep::Place> places;
};

void AddWanted(const CopyStep::Place& place, std::vector<WantedPiece>& wanted) {
  std::vector<Rect> fresh = {place.extent.rect};
  const size_t known = wanted.size();
  for (size_t i = 0; i < known && !fresh.empty(); ++i) {
    const Rect both = Overlap(wanted[i].rect, place.extent.rect);
    if (both.elements() == 0) continue;
    Remove(fresh, both);
    for (const Rect& rect : Without(wanted[i].rect, both)) {
      wanted.push_back({rect, std::vector(wanted[i].places)});
    }
    wanted[i].rect = both;
    wanted[i].places.push_back(place);
  }
  for (const Rect& rect : fresh) wanted.push_back({rect, {place}});
}

// Finds the extents that overlap a rectangle, without looking at all of them.
class OwnersByRow {
 public:
  explicit OwnersByRow(const Descriptor& owners) : owners_(owners) {
    std::stable_sort(
        owners_.begin(), owners_.end(),
        [](const Extent& a, const Extent& b) { return a.rect < b.rect; });
    int64_t end = 0;
    for (const Extent& owner : owners_) {
      end = std::max(end, owner.rect.row + owner.rect.rows);
      ends_.push_back(end);
    }
  }

  // Calls visit(owner) for the extents that may overlap `rect`.
  template <typename Visit>
  void ForEach(const Rect& rect, Visit visit) const {
    const auto first = std::upper_bound(ends_.begin(), ends_.end(), rect.row);
    for (auto i = static_cast<size_t>(first - ends_.begin());
         i < owners_.size() && owners_[i].rect.row < rect.row + rect.rows;
         ++i) {
      visit(owners_[i]);
    }
  }

 private:
  Descriptor owners_;
  std::vector<int64_t> ends_;  // of owners_ up to each, the last row's
};

// The extents of a descriptor on `rank`.
std::span<const Extent> OnRank(const Descriptor& extents, int rank) {
  const auto first =
      std::lower_bound(extents.begin(), extents.end(), rank,
                       [](const Extent& e, int r) { return e.rank < r; });
  const auto last =
      std::upper_bound(first, extents.end(), rank,
                       [](int r, const Extent& e) { return r < e.rank; });
  return {first, last};
}

// Makes plans: the steps of all ranks, or those that one rank takes part in.
class Planner {
 public:
  static constexpr int kAllRanks = -1;

  Planner(int rank, const Descriptor& owners, const Descriptor& before,
          const std::vector<Descriptor>& after)
      : rank_(rank),
        owners_(owners),
        owned_(OnRank(owners, rank)),
        before_(before),
        after_(after) {}

  CopyPlan Plan() {
    int ranks = 0;
    for (const Descriptor& places : after_) {
      if (!places.empty()) ranks = std::max(ranks, places.back().rank + 1);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      // This rank sends others what they want; and it must know whether any
      // step crosses.
      if (IsPlanned(rank) || !owned_.empty() || !plan_.crosses) AddFor(rank);
    }
    for (auto& [source, step] : steps_) plan_.steps.push_back(std::move(step));
    return std::move(plan_);
  }

 private:
  // Whether the plan has all steps that write to `rank`.
  bool IsPlanned(int rank) const { return rank_ == kAllRanks || rank == rank_; }

  void AddFor(int rank) {
    std::vector<WantedPiece> wanted;
    for (size_t target = 0; target < after_.size(); ++target) {
      for (const Extent& extent : OnRank(after_[target], rank)) {
        AddWanted({extent, target}, wanted);
      }
    }
    const std::span<const Extent> here = OnRank(before_, rank);
    for (const WantedPiece& want : wanted) {
      std::vector<Rect> missing = {want.rect};
      for (const Extent& have : here) {
        for (const Rect& rect : std::vector(missing)) {
          const Rect both = Overlap(have.rect, rect);
          if (both.elements() == 0) continue;
          if (IsPlanned(rank)) AddStep(have, both, want);
          Remove(missing, both);
        }
      }
      for (const Rect& rect : missing) AddMissing(rank, rect, want);
    }
  }

  // Plans `rect`, which `rank` wants and does not have. Each owner's part of it
  // is the overlap of the two and is not cut further, so that owner and `rank`
  // agree on it.
  void AddMissing(int rank, const Rect& rect, const WantedPiece& want) {
    plan_.crosses = true;
    int64_t found = 0;
    const auto add = [&](const Extent& owner) {
      const Rect both = Overlap(owner.rect, rect);
      if (both.elements() == 0) return;
      found += both.elements();
      AddStep(owner, both, want);
    };
    if (!IsPlanned(rank)) {
      for (const Extent& owner : owned_) add(owner);
      return;
    }
    if (!by_row_.has_value()) by_row_.emplace(owners_);
    by_row_->ForEach(rect, add);
    plan_.complete = plan_.complete && found == rect.elements();
  }

  // All places of `want` get `rect`, which `from` has.
  void AddStep(const Extent& from, const Rect& rect, const WantedPiece& want) {
    const Extent part = Part(from, rect);
    CopyStep& step =
        steps_[{part.rank, part.slab, part.param, part.offset, rect}];
    step.from = part;
    for (const CopyStep::Place& place : want.places) {
      step.to.push_back({Part(place.extent, rect), place.target});
    }
  }

  const int rank_;
  const Descriptor& owners_;
  const std::span<const Extent> owned_;  // by rank_
  const Descriptor& before_;
  const std::vector<Descriptor>& after_;
  std::optional<OwnersByRow> by_row_;  // where this rank lacks something
  std::map<std::tuple<int, int, size_t, int64_t, Rect>, CopyStep> steps_;
  CopyPlan plan_;
};

// The part of a step that reads and writes `rect`.
CopyStep PartOf(const CopyStep& step, const Rect& rect) {
  CopyStep part{.from = Part(step.from, rect)};
  for (const CopyStep::Place& place : step.to) {
    part.to.push_back({Part(place.extent, rect), place.target});
  }
  return part;
}

// For every local slab that has some of the tensor and every rank of its group,
// the extents in elements range_of(slab, rank).
template <typename RangeOf>
Descriptor ExtentsIn(const Layout& layout, const LogicalTensor& tensor,
                     StateExtent grid, const RangeOf& range_of) {
  Descriptor extents;
  const Range locals = layout.LocalSlabsOfLogical(tensor.slab);
  for (int64_t s = locals.begin; s < locals.end; ++s) {
    const int slab = static_cast<int>(s);
    const LocalSlab& local = At(layout.local_slabs(), s);
    const auto at =
        std::find(local.params.begin(), local.params.end(), tensor.param);
    if (at == local.params.end()) continue;
    const auto index = static_cast<size_t>(at - local.params.begin());
    for (const int rank : *local.group) {
      const Range range = range_of(slab, rank);
      if (grid == StateExtent::kElements) {
        AddExtents(local, index, range, rank, slab, extents);
      } else if (grid != StateExtent::kNone) {
        AddStatistics(local, index,
                      StatisticsOf(local.rects[index], tensor.shape, grid),
                      range, rank, slab, extents);
      }
    }
  }
  std::stable_sort(
      extents.begin(), extents.end(),
      [](const Extent& a, const Extent& b) { return a.rank < b.rank; });
  return extents;
}

// Whether a piece of whole grains may begin or end at `at`: also at the ends of
// the parameter.
bool IsEnd(const Grain& grain, int64_t at) {
  return at == 0 || at == grain.elements ||
         (grain.first + at) % grain.size == 0;
}

void CheckGrain(const CopyStep& step, const Grain& grain) {
  const int64_t begin = step.to.front().extent.offset;
  DELINK_CHECK_EQ(step.from.rect.columns, 1);
  DELINK_CHECK(IsEnd(grain, begin) && IsEnd(grain, begin + step.from.rect.rows))
      << "a layout cuts what is kept in blocks of " << grain.size;
  for (const CopyStep::Place& place : step.to) {
    DELINK_CHECK_EQ(place.extent.offset, begin);
  }
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
                        StateExtent grid, bool sharded) {
  return ExtentsIn(layout, tensor, grid, [&](int slab, int rank) {
    return sharded ? layout.OwnedBy(slab, rank)
                   : Range{0, At(layout.local_slabs(), slab).slab.elements};
  });
}

Descriptor WeightsOf(const Layout& layout, const LogicalTensor& tensor) {
  return ExtentsIn(
      layout, tensor, StateExtent::kElements,
      [&](int slab, int rank) { return layout.WeightsOn(slab, rank); });
}

Descriptor OwnersOf(const Layout& layout, const LogicalTensor& tensor,
                    StateExtent grid) {
  Descriptor owners = DescriptorOf(layout, tensor, grid, true);
  if (grid == StateExtent::kElements) return owners;
  std::map<Rect, int> slabs;  // the first that has it
  for (const Extent& extent : owners) {
    int& slab = slabs.emplace(extent.rect, extent.slab).first->second;
    slab = std::min(slab, extent.slab);
  }
  std::erase_if(owners, [&](const Extent& extent) {
    return slabs.at(extent.rect) != extent.slab;
  });
  return owners;
}

Descriptor ReducedOf(const Layout& layout, const LogicalTensor& tensor) {
  return ExtentsIn(
      layout, tensor, StateExtent::kElements,
      [&](int slab, int rank) { return layout.ReducedOn(slab, rank); });
}

Descriptor AsRanges(const Descriptor& extents, const Shape& shape) {
  const int64_t columns = WholeOf(shape).columns;
  Descriptor ranges;
  for (const Extent& extent : extents) {
    const Rect& rect = extent.rect;
    DELINK_CHECK(rect.rows == 1 ||
                 (rect.columns == columns && extent.pitch == columns))
        << "a layout cuts rows of what is a range of elements";
    Extent range = extent;
    range.rect = {.row = rect.row * columns + rect.column,
                  .rows = rect.elements(),
                  .columns = 1};
    range.pitch = 1;
    Extent* const last = ranges.empty() ? nullptr : &ranges.back();
    if (last != nullptr && last->rank == range.rank &&
        last->slab == range.slab && last->param == range.param &&
        last->rect.row + last->rect.rows == range.rect.row &&
        last->offset + last->rect.rows == range.offset) {
      last->rect.rows += range.rect.rows;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

bool IsInGrains(const Descriptor& extents, const Shape& shape,
                const Grain& grain) {
  const int64_t columns = WholeOf(shape).columns;
  const auto is_range = [&](const Extent& extent) {
    return extent.rect.rows == 1 ||
           (extent.rect.columns == columns && extent.pitch == columns);
  };
  if (!std::all_of(extents.begin(), extents.end(), is_range)) return false;
  const Descriptor ranges = AsRanges(extents, shape);
  return std::all_of(ranges.begin(), ranges.end(), [&](const Extent& range) {
    return IsEnd(grain, range.rect.row) &&
           IsEnd(grain, range.rect.row + range.rect.rows);
  });
}

bool CopyStep::crosses() const {
  return std::any_of(to.begin(), to.end(), [&](const Place& place) {
    return place.extent.rank != from.rank;
  });
}

std::vector<CopyStep> PlanCopy(const Descriptor& owners,
                               const Descriptor& before,
                               const std::vector<Descriptor>& after) {
  CopyPlan plan = Planner(Planner::kAllRanks, owners, before, after).Plan();
  DELINK_CHECK(plan.complete) << "an element that nobody owns";
  return std::move(plan.steps);
}

CopyPlan PlanCopyOn(int rank, const Descriptor& owners,
                    const Descriptor& before,
                    const std::vector<Descriptor>& after) {
  DELINK_CHECK_GE(rank, 0);
  return Planner(rank, owners, before, after).Plan();
}

absl::Status CutIntoPieces(const CopyStep& step, int64_t most,
                           const Grain& grain,
                           const std::function<absl::Status(CopyStep)>& visit) {
  DELINK_CHECK(most > 0 && most % grain.size == 0);
  if (grain.size > 1) CheckGrain(step, grain);
  const Rect& all = step.from.rect;
  const int64_t width = std::min(most, all.columns);
  const int64_t height = most / width;
  // Pieces of a range end at multiples of `height`; if the range begins between
  // two of these, its first piece is shorter.
  const int64_t behind =
      grain.size > 1 ? (grain.first + step.to.front().extent.offset) % height
                     : 0;
  for (int64_t r = -behind; r < all.rows; r += height) {
    const int64_t begin = std::max<int64_t>(r, 0);
    const int64_t end = std::min(r + height, all.rows);
    for (int64_t c = 0; c < all.columns; c += width) {
      DELINK_RETURN_IF_ERROR(
          visit(PartOf(step, {.row = all.row + begin,
                              .rows = end - begin,
                              .column = all.column + c,
                              .columns = std::min(width, all.columns - c)})));
    }
  }
  return absl::OkStatus();
}

}  // namespace delink
