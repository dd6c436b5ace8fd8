#include "framework/module/layout.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/device/backend.h"

namespace delink {
namespace {

// Piece `i` of `n` of [0, count), as even as can be.
Range EvenPiece(int64_t count, int i, int n) {
  return {count * i / n, count * (i + 1) / n};
}

// What place `at` of `ranks` along the tensor axis has of a parameter.
std::vector<Rect> RectsOf(const ParamSpec& spec, int at, int ranks) {
  const Rect whole = WholeOf(spec.shape);
  if (spec.split == Split::kNone || ranks == 1) return {whole};
  if (spec.split == Split::kIn) {
    const Range columns = EvenPiece(whole.columns, at, ranks);
    return {{.rows = whole.rows,
             .column = columns.begin,
             .columns = columns.size()}};
  }
  std::vector<int64_t> stacked = spec.stacked;
  if (stacked.empty()) stacked = {whole.rows};
  std::vector<Rect> rects;
  int64_t first = 0;
  for (const int64_t count : stacked) {
    const Range rows = EvenPiece(count, at, ranks);
    if (rows.size() > 0) {
      rects.push_back({.row = first + rows.begin,
                       .rows = rows.size(),
                       .columns = whole.columns});
    }
    first += count;
  }
  DELINK_CHECK_EQ(first, whole.rows) << "stacked rows are all of a parameter's";
  return rects;
}

// By place.
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

Layout::Group Layout::MakeGroup(const std::set<int>& stages, int tensor) const {
  std::vector<int> group;
  for (int rank = 0; rank < ranks(); ++rank) {
    const MeshPlace place = mesh().PlaceOf(rank);
    if (!stages.contains(place[Axis::kPipeline])) continue;
    if (tensor < 0 || place[Axis::kTensor] == tensor) group.push_back(rank);
  }
  return std::make_shared<const std::vector<int>>(std::move(group));
}

// Into what all places along the tensor axis have, and what each has.
void Layout::CutSlab(int logical, Groups& groups) {
  const Slab& whole = At(slabs_, logical);
  std::set<int> stages;
  for (const int layer : whole.layers) stages.insert(StageOf(layer));
  const int tensor = mesh().tensor;
  const auto decl = [&](const SlabParam& param) -> const ParamDecl& {
    return registry_->decl(param.decl);
  };
  // -1: what is not cut.
  for (int at = -1; at < tensor; ++at) {
    LocalSlab local{.logical = logical};
    local.slab = {.name = whole.name,
                  .part = whole.part,
                  .leader = whole.leader,
                  .layers = whole.layers};
    for (size_t p = 0; p < whole.params.size(); ++p) {
      const ParamSpec& spec = decl(whole.params[p]).spec;
      const bool cut = tensor > 1 && spec.split != Split::kNone;
      if (cut != (at >= 0)) continue;
      std::vector<Rect> rects = RectsOf(spec, std::max(at, 0), tensor);
      SlabParam param{.decl = whole.params[p].decl,
                      .offset = local.slab.elements};
      for (const Rect& rect : rects) param.elements += rect.elements();
      local.slab.elements += AlignUp(param.elements, kParamAlignment);
      local.slab.params.push_back(param);
      local.rects.push_back(std::move(rects));
      local.params.push_back(p);
    }
    if (local.slab.params.empty()) continue;
    if (at >= 0) local.slab.name += ".cut";
    local.slab.block = BlockSize(local.slab.elements, at >= 0 ? tensor : 1);
    local.first_cell = cells();
    Group& group = groups[{stages, at}];
    if (group == nullptr) group = MakeGroup(stages, at);
    local.group = group;
    local.partial = {Axis::kContext, Axis::kData, Axis::kPipeline};
    if (at < 0 && options_.sequence) {
      local.partial = {Axis::kTensor, Axis::kContext, Axis::kData,
                       Axis::kPipeline};
    }
    local_slabs_.push_back(std::move(local));
  }
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

void Layout::PlacePlanes() {
  placement_.rows.resize(local_slabs_.size());
  std::vector<size_t> order(local_slabs_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return local_slabs_[a].slab.elements > local_slabs_[b].slab.elements;
  });
  std::vector<int64_t> load(static_cast<size_t>(ranks()), 0);
  for (const size_t s : order) {
    const LocalSlab& local = local_slabs_[s];
    PlacementRow& row = placement_.rows[s];
    row.state.sharded = options_.zero >= 1 && local.group->size() > 1;
    if (!row.state.sharded || !IsWhole(local)) continue;
    row.owner = *std::min_element(
        local.group->begin(), local.group->end(),
        [&](int a, int b) { return At(load, a) < At(load, b); });
    At(load, row.owner) += local.slab.elements;
  }
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

std::vector<Range> Layout::CellsNotOn(int rank) const {
  std::vector<Range> cells;
  for (const LocalSlab& local : local_slabs_) {
    if (std::binary_search(local.group->begin(), local.group->end(), rank)) {
      continue;
    }
    cells.push_back({local.first_cell, local.first_cell + local.slab.blocks()});
  }
  return cells;
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
  const std::vector<int>& group = *local.group;
  const auto at = std::lower_bound(group.begin(), group.end(), rank);
  if (at == group.end() || *at != rank) return {};
  return ShardRange(local.slab, static_cast<int>(at - group.begin()),
                    static_cast<int>(local.group->size()));
}

}  // namespace delink
