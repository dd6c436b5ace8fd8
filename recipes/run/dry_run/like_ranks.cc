#include "recipes/run/dry_run/like_ranks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "framework/base/at.h"

namespace delink {
namespace {

using Numbers = std::vector<int64_t>;
using Group = std::vector<int>;

// Of a rank in a group; -1: it is not there.
int PlaceIn(const Group& group, int rank) {
  const auto at = std::ranges::lower_bound(group, rank);
  const bool found = at != group.end() && *at == rank;
  return found ? static_cast<int>(at - group.begin()) : -1;
}

// All that decides the bytes of a local slab's planes, except which share a
// rank has.
Numbers FormOf(const Layout& layout, size_t s) {
  const LocalSlab& local = layout.local_slabs()[s];
  const PlacementRow& row = layout.placement().rows[s];
  Numbers form = {At(layout.slabs(), local.logical).elements,
                  local.slab.elements,
                  local.slab.block,
                  local.slab.exact,
                  static_cast<int64_t>(row.update),
                  row.owner != kNoOwner};
  for (const PlanePlacement& of : {row.weight, row.gradient, row.state}) {
    form.insert(form.end(),
                {of.sharded, static_cast<int64_t>(of.tier), of.resident});
  }
  for (size_t p = 0; p < local.slab.params.size(); ++p) {
    const SlabParam& param = local.slab.params[p];
    const ParamDecl& decl = layout.registry().decl(param.decl);
    form.insert(
        form.end(),
        {param.offset, static_cast<int64_t>(KindOf(decl, layout.blocks())),
         decl.spec.shape.rank(), std::ssize(local.rects[p])});
    for (const int64_t dim : decl.spec.shape.dims()) form.push_back(dim);
    for (const Rect& rect : local.rects[p]) {
      form.insert(form.end(), {rect.rows, rect.columns});
    }
  }
  return form;
}

class Shares {
 public:
  Shares(const ParamStore& store, std::span<const int> ranks)
      : store_(store), layout_(store.layout()) {
    std::map<const Group*, bool> is_here;
    std::map<Numbers, int> known;
    for (size_t s = 0; s < layout_.local_slabs().size(); ++s) {
      const Group& group = *layout_.local_slabs()[s].group;
      const auto [here, fresh] = is_here.try_emplace(&group);
      if (fresh) {
        here->second = std::ranges::any_of(
            ranks, [&](int rank) { return PlaceIn(group, rank) >= 0; });
      }
      if (!here->second) continue;
      const auto [at, added] =
          known.try_emplace(FormOf(layout_, s), static_cast<int>(known.size()));
      if (added) example_.push_back(static_cast<int>(s));
      const PlacementRow& row = layout_.placement().rows[s];
      if (row.owner != kNoOwner) ++owned_[row.owner][at->second];
      const auto local = static_cast<int>(s);
      for (const int rank : group) {
        if (row.owner == kNoOwner || !row.weight.sharded) break;
        const bool has = layout_.WeightsOn(local, rank).size() > 0;
        if (has && rank != row.owner) ++owned_[rank][-1 - at->second];
      }
      ++in_group_[&group][at->second];
      slab_of_[&group] = local;
    }
  }

  // Equal for like ranks.
  Numbers KeyOf(int rank) {
    const MeshPlace place = layout_.mesh().PlaceOf(rank);
    std::vector<Numbers> slabs;  // of a group and a form
    for (const auto& [group, forms] : in_group_) {
      const int at = layout_.ShardOf(slab_of_.at(group), rank);
      if (at < 0) continue;
      const auto ranks = static_cast<int>(group->size());
      for (const auto& [form, count] : forms) {
        slabs.push_back({form, count, ranks, ShareOf(form, at, ranks)});
      }
    }
    std::ranges::sort(slabs);
    Numbers key = {place[Axis::kTensor]};
    for (const Numbers& of : slabs) key.insert(key.end(), of.begin(), of.end());
    for (const auto& [form, count] : owned_[rank]) {
      key.insert(key.end(), {-1, form, count});
    }
    return key;
  }

 private:
  // A number for the bytes of the shares of the state that owner `at` of a
  // group of `ranks` has of a slab; 0 if it is not in shares.
  int64_t ShareOf(int form, int at, int ranks) {
    const auto s = static_cast<size_t>(At(example_, form));
    const PlacementRow& row = layout_.placement().rows[s];
    if (!row.state.sharded || row.owner != kNoOwner) return 0;
    const auto [share, added] = shares_.try_emplace({form, ranks, at}, 0);
    if (!added) return share->second;
    const LocalSlab& local = layout_.local_slabs()[s];
    const Range held = ShardRange(local.slab, at, ranks);
    Numbers bytes;
    for (const StateSpec& spec : store_.states()) {
      bytes.push_back(LayOutState(local, layout_.registry(), layout_.blocks(),
                                  spec, StatisticsOf(store_.options().dtype),
                                  held.begin, local.slab.ShardElements(ranks))
                          .bytes);
    }
    const auto next = static_cast<int64_t>(bytes_.size()) + 1;
    share->second = bytes_.try_emplace(std::move(bytes), next).first->second;
    return share->second;
  }

  const ParamStore& store_;
  const Layout& layout_;
  std::vector<int> example_;  // by form, a local slab
  // Forms, how many slabs.
  std::map<const Group*, std::map<int, int64_t>> in_group_;
  std::map<const Group*, int> slab_of_;  // a local slab of the group
  // By rank: forms, how many; below 0: of which it has only the weights.
  std::map<int, std::map<int, int64_t>> owned_;
  std::map<std::tuple<int, int, int>, int64_t> shares_;
  std::map<Numbers, int64_t> bytes_;
};

}  // namespace

std::vector<int> LikeRanks(const ParamStore& store,
                           std::span<const int> ranks) {
  Shares shares(store, ranks);
  std::map<Numbers, int> first;
  std::vector<int> like;
  for (const int rank : ranks) {
    like.push_back(first.try_emplace(shares.KeyOf(rank), rank).first->second);
  }
  return like;
}

}  // namespace delink
