#include "framework/module/layout.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/device/backend.h"
#include "framework/module/cut_rects.h"
#include "framework/module/even_piece.h"

namespace delink {
namespace {

// The visited layers, by place.
std::vector<int> VisitedLayers(const SharingMap& sharing, int blocks) {
  std::vector<int> layers = {0};
  for (const int block : sharing.VisitedOf(blocks)) {
    DELINK_CHECK(block + 1 > layers.back() && block < blocks) << block;
    layers.push_back(block + 1);
  }
  layers.push_back(blocks + 1);
  return layers;
}

}  // namespace

Layout Layout::Create(const ParamRegistry& registry, int blocks,
                      const SharingMap& sharing, Options options) {
  Layout layout;
  layout.registry_ = &registry;
  layout.blocks_ = blocks;
  layout.sharing_ = sharing;
  layout.visited_ = VisitedLayers(sharing, blocks);
  layout.options_ = std::move(options);
  std::vector<int>& chunks = layout.options_.chunks;
  const int stages = layout.mesh().pipeline;
  if (chunks.empty()) {
    for (int stage = 0; stage < stages; ++stage) {
      chunks.insert(
          chunks.end(),
          static_cast<size_t>(EvenPiece(layout.places(), stage, stages).size()),
          stage);
    }
  }
  DELINK_CHECK_EQ(static_cast<int>(chunks.size()), layout.places());
  DELINK_CHECK(std::is_sorted(chunks.begin(), chunks.end()));
  DELINK_CHECK_GE(chunks.front(), 0);
  DELINK_CHECK(stages > 1 || chunks.back() == 0);
  std::set<std::string> names;
  for (const ParamDecl& decl : registry.decls) {
    DELINK_CHECK_LE(decl.layer, blocks + 1) << decl.name;
    const bool first = names.insert(decl.name).second;
    DELINK_CHECK(first) << "parameter " << decl.name << " is declared twice";
  }
  layout.slabs_ = LayOutSlabs(registry, blocks, sharing);
  layout.tensors_ = LogicalTensors(registry, blocks, sharing, layout.slabs_);
  Groups groups;
  for (size_t s = 0; s < layout.slabs_.size(); ++s) {
    layout.first_local_.push_back(layout.local_slabs_.size());
    layout.CutSlab(static_cast<int>(s), groups);
  }
  layout.first_local_.push_back(layout.local_slabs_.size());
  layout.PlacePlanes();
  return layout;
}

int Layout::StageOf(int layer) const {
  const auto at = std::lower_bound(visited_.begin(), visited_.end(), layer);
  return At(options_.chunks, at - visited_.begin()) % mesh().pipeline;
}

// The ranks of these stages, by their piece of the cut.
std::vector<Layout::Group> Layout::MakeGroups(const std::set<int>& stages,
                                              AxisCut cut) const {
  std::vector<std::vector<int>> ranks_of(static_cast<size_t>(cut.pieces));
  for (int rank = 0; rank < ranks(); ++rank) {
    const MeshPlace place = mesh().PlaceOf(rank);
    if (!stages.contains(place[Axis::kPipeline])) continue;
    At(ranks_of, mesh().PieceAt(mesh().InStage(place), cut)).push_back(rank);
  }
  std::vector<Group> groups;
  for (std::vector<int>& of : ranks_of) {
    groups.push_back(std::make_shared<const std::vector<int>>(std::move(of)));
  }
  return groups;
}

// Cuts a slab into local slabs that all places of a stage have, that some have,
// and that one has.
void Layout::CutSlab(int logical, Groups& groups) {
  const Slab& whole = At(slabs_, logical);
  std::set<int> stages;
  for (const int layer : whole.layers) stages.insert(StageOf(layer));
  std::vector<std::set<Way>> ways;  // by parameter
  std::set<Way> all;
  for (const SlabParam& param : whole.params) {
    const ParamSpec& spec = registry_->decl(param.decl).spec;
    std::set<Way>& own = ways.emplace_back();
    for (const AxisCut cut : CutsOf(spec, mesh())) own.emplace(cut, spec.exact);
    all.insert(own.begin(), own.end());
  }
  // At most 1024 cells for each way to cut; 2048 in all for three or more ways.
  const int share = (static_cast<int>(all.size()) + 1) / 2;
  for (const Way& way : all) {
    const AxisCut cut = way.first;
    program_slabs_.push_back({.logical = logical,
                              .first = static_cast<int>(local_slabs_.size()),
                              .cut = cut});
    std::vector<Group>& pieces = groups[{stages, cut}];
    if (pieces.empty()) pieces = MakeGroups(stages, cut);
    for (int i = 0; i < cut.pieces; ++i) {
      LocalSlab local = PieceOfSlab(logical, ways, i, way);
      local.slab.block = BlockSize(local.slab.elements, cut.pieces * share);
      local.first_cell = cells();
      local.group = At(pieces, i);
      NumberShards(local);
      local_slabs_.push_back(std::move(local));
    }
  }
}

LocalSlab Layout::PieceOfSlab(int logical,
                              const std::vector<std::set<Way>>& ways, int i,
                              const Way& way) const {
  const auto [cut, exact] = way;
  const Slab& whole = At(slabs_, logical);
  LocalSlab local{.logical = logical};
  local.slab = {.name = whole.name,
                .part = whole.part,
                .leader = whole.leader,
                .layers = whole.layers,
                .exact = exact};
  if (cut.pieces > 1) {
    local.slab.name += cut.axis == Axis::kExpert ? ".experts"
                       : cut.pieces == mesh().tensor
                           ? ".cut"
                           : ".unit" + std::to_string(i);
  }
  if (exact) local.slab.name += ".exact";
  local.program_slab = static_cast<int>(program_slabs_.size()) - 1;
  for (size_t p = 0; p < whole.params.size(); ++p) {
    if (!ways[p].contains(way)) continue;
    const int decl = whole.params[p].decl;
    std::vector<Rect> rects =
        RectsOf(registry_->decl(decl).spec, mesh(), cut, i);
    SlabParam param{.decl = decl, .offset = local.slab.elements};
    for (const Rect& rect : rects) param.elements += rect.elements();
    local.slab.elements += AlignUp(param.elements, kParamAlignment);
    local.slab.params.push_back(param);
    local.rects.push_back(std::move(rects));
    local.params.push_back(p);
  }
  return local;
}

std::vector<Range> Layout::IdenticalOverTensor(int local_slab) const {
  std::vector<Range> ranges;
  if (mesh().tensor == 1 || options_.sequence) return ranges;
  for (const SlabParam& param : At(local_slabs_, local_slab).slab.params) {
    const ParamSpec& spec = registry_->decl(param.decl).spec;
    if (spec.split != Split::kNone || spec.by_head) continue;
    const Range range{param.offset, param.offset + param.elements};
    if (!ranges.empty() &&
        AlignUp(ranges.back().end, kParamAlignment) == range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

// Whether an update must see a tensor of the slab whole.
bool Layout::IsWhole(const LocalSlab& slab) const {
  if (options_.whole_tensors != WholeTensors::kHidden) {
    return options_.whole_tensors == WholeTensors::kAll;
  }
  return std::any_of(slab.slab.params.begin(), slab.slab.params.end(),
                     [&](const SlabParam& param) {
                       return KindOf(registry_->decl(param.decl), blocks_) ==
                              ParamKind::kHidden;
                     });
}

bool Layout::IsOfOneStage(const Slab& slab) const {
  return std::ranges::all_of(slab.layers, [&](int layer) {
    return StageOf(layer) == StageOf(slab.layers.front());
  });
}

void Layout::PlacePlanes() {
  placement_.rows.resize(local_slabs_.size());
  std::vector<size_t> order(local_slabs_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return local_slabs_[a].slab.elements > local_slabs_[b].slab.elements;
  });
  std::vector<int64_t> load(static_cast<size_t>(ranks()), 0);
  std::vector<std::vector<int>> beside(slabs_.size());  // by logical slab
  for (const size_t s : order) {
    const LocalSlab& local = local_slabs_[s];
    PlacementRow& row = placement_.rows[s];
    row.state.sharded = options_.zero >= 1 && local.group->size() > 1;
    row.gradient.sharded = options_.zero >= 2 && local.group->size() > 1;
    // Stages visit their layers at other times, so they do not gather together.
    row.weight.sharded = options_.zero >= 3 && IsOfOneStage(local.slab) &&
                         std::ssize(*local.group) > local.replicas;
    if (!row.state.sharded || !IsWhole(local)) continue;
    // The owners of one matrix's pieces gather them along the tensor axis.
    // Experts are whole.
    std::vector<int> none;
    const bool experts =
        At(program_slabs_, local.program_slab).cut.axis == Axis::kExpert;
    std::vector<int>& places = experts ? none : At(beside, local.logical);
    std::vector<int> fitting;
    std::ranges::set_intersection(*local.group, places,
                                  std::back_inserter(fitting));
    row.owner = std::ranges::min(places.empty() ? *local.group : fitting, {},
                                 [&](int rank) { return At(load, rank); });
    At(load, row.owner) += local.slab.elements;
    if (places.empty()) places = mesh().Group(row.owner, {Axis::kTensor});
  }
}

Layout Layout::WithTiers(const std::vector<SlabTiers>& tiers) const {
  DELINK_CHECK_EQ(tiers.size(), slabs_.size());
  Layout layout = *this;
  for (size_t s = 0; s < local_slabs_.size(); ++s) {
    const SlabTiers& wanted = At(tiers, local_slabs_[s].logical);
    PlacementRow& row = layout.placement_.rows[s];
    row.weight.tier = wanted.weight;
    row.weight.resident = wanted.weight_resident;
    row.gradient.tier = wanted.gradient;
    row.gradient.resident = wanted.gradient_resident;
    row.state.tier = wanted.state;
    row.update = wanted.update;
  }
  return layout;
}

int64_t Layout::cells() const {
  if (local_slabs_.empty()) return 0;
  const LocalSlab& last = local_slabs_.back();
  return last.first_cell + last.slab.blocks();
}

Range Layout::CellsOfLogical(int logical) const {
  const Range slabs = LocalSlabsOfLogical(logical);
  const LocalSlab& last = At(local_slabs_, slabs.end - 1);
  return {At(local_slabs_, slabs.begin).first_cell,
          last.first_cell + last.slab.blocks()};
}

std::vector<int> Layout::LayersOf(int rank) const {
  const int stage = mesh().PlaceOf(rank)[Axis::kPipeline];
  std::vector<int> layers;
  for (const int layer : visited_) {
    if (StageOf(layer) == stage) layers.push_back(layer);
  }
  return layers;
}

std::vector<int> Layout::LocalSlabsOf(int rank) const {
  std::vector<int> slabs;
  for (size_t s = 0; s < local_slabs_.size(); ++s) {
    const std::vector<int>& group = *local_slabs_[s].group;
    if (std::binary_search(group.begin(), group.end(), rank)) {
      slabs.push_back(static_cast<int>(s));
    }
  }
  return slabs;
}

Range Layout::OwnedBy(int local_slab, int rank) const {
  const auto s = static_cast<size_t>(local_slab);
  const LocalSlab& local = local_slabs_[s];
  const int owner = placement_.rows[s].owner;
  if (owner != kNoOwner) {
    return {0, owner == rank ? local.slab.elements : 0};
  }
  return ReducedOn(local_slab, rank);
}

Range Layout::ReducedOn(int local_slab, int rank) const {
  const LocalSlab& local = At(local_slabs_, local_slab);
  const int shard = ShardOf(local_slab, rank);
  if (shard < 0) return {};
  return ShardRange(local.slab, shard, static_cast<int>(local.group->size()));
}

void Layout::NumberShards(LocalSlab& local) const {
  if (options_.zero < 3 || options_.shard == 0) return;
  if (!IsOfOneStage(local.slab)) return;
  std::vector<std::pair<int, int>> places;  // by rank: its part, place in that
  std::map<int, int> members;               // by part
  for (const int rank : *local.group) {
    const int part = mesh().PlaceOf(rank)[Axis::kData] / options_.shard;
    places.emplace_back(part, members[part]++);
  }
  local.replicas = static_cast<int>(members.size());
  const int each = members.begin()->second;
  if (local.replicas == 1 || each == 1) return;
  std::vector<int> shards;
  for (const auto& [part, place] : places) {
    DELINK_CHECK_EQ(members[part], each) << local.slab.name;
    const auto number = std::distance(members.begin(), members.find(part));
    shards.push_back(place * local.replicas + static_cast<int>(number));
  }
  local.shards = std::make_shared<const std::vector<int>>(std::move(shards));
}

int Layout::ShardOf(int local_slab, int rank) const {
  const LocalSlab& local = At(local_slabs_, local_slab);
  const std::vector<int>& group = *local.group;
  const auto at = std::lower_bound(group.begin(), group.end(), rank);
  if (at == group.end() || *at != rank) return -1;
  const auto place = static_cast<int>(at - group.begin());
  return local.shards == nullptr ? place : At(*local.shards, place);
}

Range Layout::WeightsOn(int local_slab, int rank) const {
  const LocalSlab& local = At(local_slabs_, local_slab);
  const PlacementRow& row = At(placement_.rows, local_slab);
  const int shard = ShardOf(local_slab, rank);
  if (shard < 0) return {};
  const Range all{0, local.slab.elements};
  if (!row.weight.sharded) return all;
  const int first = shard / local.replicas * local.replicas;
  if (row.owner != kNoOwner) {
    const int owned = ShardOf(local_slab, row.owner);
    return owned / local.replicas * local.replicas == first ? all : Range{};
  }
  const auto ranks = static_cast<int>(local.group->size());
  return {ShardRange(local.slab, first, ranks).begin,
          ShardRange(local.slab, first + local.replicas - 1, ranks).end};
}

// Ranks of the group whose shard matches.
template <typename Matches>
std::vector<int> Layout::Among(int local_slab, Matches matches) const {
  const LocalSlab& local = At(local_slabs_, local_slab);
  std::vector<int> ranks;
  for (size_t place = 0; place < local.group->size(); ++place) {
    const int shard = local.shards == nullptr ? static_cast<int>(place)
                                              : (*local.shards)[place];
    if (matches(shard)) ranks.push_back((*local.group)[place]);
  }
  return ranks;
}

std::vector<int> Layout::GatherGroup(int local_slab, int rank) const {
  const int replicas = At(local_slabs_, local_slab).replicas;
  const int own = ShardOf(local_slab, rank) % replicas;
  return Among(local_slab, [=](int shard) { return shard % replicas == own; });
}

std::vector<int> Layout::ReplicaGroup(int local_slab, int rank) const {
  const int replicas = At(local_slabs_, local_slab).replicas;
  const int own = ShardOf(local_slab, rank) / replicas;
  return Among(local_slab, [=](int shard) { return shard / replicas == own; });
}

}  // namespace delink
