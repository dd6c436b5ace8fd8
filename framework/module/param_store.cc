#include "framework/module/param_store.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"

namespace delink {
absl::StatusOr<std::unique_ptr<ParamStore>> ParamStore::Create(
    Device& device, Layout layout, int rank, const Options& options) {
  return Create(device, std::make_shared<const Layout>(std::move(layout)), rank,
                options);
}

absl::StatusOr<std::unique_ptr<ParamStore>> ParamStore::Create(
    Device& device, std::shared_ptr<const Layout> layout, int rank,
    const Options& options) {
  DELINK_CHECK(!options.bf16_gradients || options.dtype == DType::kBF16);
  std::unique_ptr<ParamStore> store(
      new ParamStore(device, std::move(layout), rank, options));
  store->LayOutStates();
  DELINK_RETURN_IF_ERROR(store->AllocatePlanes());
  return store;
}

ParamStore::ParamStore(Device& device, std::shared_ptr<const Layout> layout,
                       int rank, const Options& options)
    : device_(&device),
      layout_(std::move(layout)),
      rank_(rank),
      options_(options),
      indices_(layout_->LocalSlabsOf(rank)),
      slabs_of_layer_(static_cast<size_t>(layout_->blocks() + 2)) {
  for (size_t s = 0; s < indices_.size(); ++s) {
    const int slab = static_cast<int>(s);
    slabs_.push_back(local(slab).slab);
    for (const int layer : slabs_[s].layers) {
      At(slabs_of_layer_, layer).push_back(slab);
    }
  }
  updates_.assign(slabs_.size(), 0);
}

int ParamStore::SlabOf(int local) const {
  const auto at = std::lower_bound(indices_.begin(), indices_.end(), local);
  DELINK_CHECK(at != indices_.end() && *at == local)
      << "slab " << local << " is not on rank " << rank_;
  return static_cast<int>(at - indices_.begin());
}

std::vector<int> ParamStore::LocalSlabsOf(int logical) const {
  const Range locals = layout_->LocalSlabsOfLogical(logical);
  const auto begin = indices_.begin();
  const auto first = std::lower_bound(begin, indices_.end(), locals.begin);
  const auto last = std::lower_bound(first, indices_.end(), locals.end);
  std::vector<int> slabs(static_cast<size_t>(last - first));
  std::iota(slabs.begin(), slabs.end(), static_cast<int>(first - begin));
  return slabs;
}

void ParamStore::LayOutStates() {
  DELINK_CHECK_LE(options_.states.size(), size_t{kMaxStates});
  const DType exact = StatisticsOf(options_.dtype);
  for (const StateSpec& spec : options_.states) {
    std::vector<StateLayout>& layouts = state_layouts_.emplace_back();
    for (size_t s = 0; s < slabs_.size(); ++s) {
      const int slab = static_cast<int>(s);
      layouts.push_back(LayOutState(local(slab), registry(), blocks(), spec,
                                    exact, held(slab, Plane::kState0).begin,
                                    PlaneElements(slab, Plane::kState0)));
    }
  }
}

DType ParamStore::TypeOf(Plane plane, bool exact) const {
  switch (plane) {
    case Plane::kWeight:
      return exact ? StatisticsOf(options_.dtype) : options_.dtype;
    case Plane::kGradient:
      return options_.bf16_gradients && !exact ? DType::kBF16
                                               : StatisticsOf(options_.dtype);
    case Plane::kLow:
      return DType::kBF16;  // 16 bits
    default:
      return StatisticsOf(options_.dtype);
  }
}

Range ParamStore::held(int slab, Plane plane) const {
  if (plane == Plane::kWeight) return layout_->WeightsOn(IndexOf(slab), rank_);
  if (PlacementOf(placement(slab), plane).sharded) return owned(slab);
  return {0, At(slabs_, slab).elements};
}

int64_t ParamStore::PlaneElements(int slab, Plane plane) const {
  const Slab& s = At(slabs_, slab);
  const int group = static_cast<int>(local(slab).group->size());
  const int64_t shard = s.ShardElements(group);
  const PlacementRow& row = placement(slab);
  if (!has(slab, plane)) return 0;
  if (!PlacementOf(row, plane).sharded) return shard * group;
  if (row.owner != kNoOwner) return held(slab, plane).size();
  return plane == Plane::kWeight ? shard * local(slab).replicas : shard;
}

int64_t ParamStore::bytes(int slab, Plane plane) const {
  if (IsState(plane)) return LayoutOf(slab, plane).bytes;
  return PlaneElements(slab, plane) * SizeOf(dtype(slab, plane));
}

int64_t ParamStore::whole_bytes(int slab, Plane plane) const {
  const int ranks = static_cast<int>(local(slab).group->size());
  return At(slabs_, slab).ShardElements(ranks) * ranks *
         SizeOf(dtype(slab, plane));
}

bool ParamStore::has(Plane plane) const {
  const bool rounded = options_.dtype == DType::kBF16;
  switch (plane) {
    case Plane::kWeight:
      return true;
    case Plane::kGradient:
      return options_.gradients;
    case Plane::kMaster:
      return rounded && options_.master == MasterForm::kWhole;
    case Plane::kLow:
      return rounded && options_.master == MasterForm::kSplit;
    default:
      return plane < StatePlane(static_cast<int>(options_.states.size()));
  }
}

bool ParamStore::has(int slab, Plane plane) const {
  const bool of_rounded = plane == Plane::kMaster || plane == Plane::kLow;
  if (of_rounded && At(slabs_, slab).exact) return false;
  return has(plane);
}

int64_t ParamStore::WantedBytes() const {
  int64_t bytes = 0;
  for (int p = 0; p < kPlanes; ++p) {
    const auto plane = static_cast<Plane>(p);
    if (!has(plane)) continue;
    for (size_t s = 0; s < slabs_.size(); ++s) {
      bytes += this->bytes(static_cast<int>(s), plane);
    }
  }
  return bytes;
}

// The plane's name in the device's ledger.
std::string ParamStore::NameOf(Plane plane) const {
  switch (plane) {
    case Plane::kWeight:
      return "weights";
    case Plane::kGradient:
      return "gradients";
    case Plane::kMaster:
      return "masters";
    case Plane::kLow:
      return "low halves";
    default:
      break;
  }
  const int state = static_cast<int>(plane) - static_cast<int>(Plane::kState0);
  return "state " + At(options_.states, state).name;
}

int64_t ParamStore::HostBytes() const {
  int64_t bytes = 0;
  for (int p = 0; p < kPlanes; ++p) {
    const auto plane = static_cast<Plane>(p);
    for (size_t s = 0; has(plane) && s < slabs_.size(); ++s) {
      const auto slab = static_cast<int>(s);
      if (PlacementOf(placement(slab), plane).tier == Tier::kDevice) continue;
      // A piece of no bytes takes one (host_arena.h).
      bytes += AlignUp(std::max<int64_t>(this->bytes(slab, plane), 1));
    }
  }
  return bytes;
}

absl::Status ParamStore::AllocatePlanes() {
  planes_.resize(kPlanes);
  const std::unique_ptr<Stream> stream = device_->NewStream();
  const int64_t on_host = HostBytes();
  if (on_host > 0 && !IsMeta(device_->kind())) {
    DELINK_ASSIGN_OR_RETURN(host_, HostArena::Create(*device_, on_host));
  }
  for (int p = 0; p < kPlanes; ++p) {
    const auto plane = static_cast<Plane>(p);
    if (!has(plane)) continue;
    for (size_t s = 0; s < slabs_.size(); ++s) {
      const auto slab = static_cast<int>(s);
      const int64_t bytes = this->bytes(slab, plane);
      PlaneMemory& memory = At(planes_, p).emplace_back();
      if (PlacementOf(placement(slab), plane).tier != Tier::kDevice) {
        if (host_ == nullptr) continue;  // a meta device takes none
        DELINK_ASSIGN_OR_RETURN(
            memory.home, host_->Take(bytes, absl::StrCat(NameOf(plane), " of ",
                                                         slabs_[s].name)));
        std::memset(memory.home, 0, static_cast<size_t>(bytes));
        memory.now = memory.home;
        continue;
      }
      absl::StatusOr<Buffer> buffer = Buffer::Allocate(
          *device_, bytes, absl::StrCat(NameOf(plane), " of ", slabs_[s].name));
      if (!buffer.ok()) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "parameters of ", slabs_[s].name, ": ", buffer.status().message(),
            "; weights, gradients and optimizer state need ", WantedBytes(),
            " bytes in all; share more layers (stage.share), shard the state "
            "over more ranks (stage.parallel.zero = 1, 2, 3), keep some of it "
            "on the host (stage.offload) or make the model smaller"));
      }
      device_->FillZero(*stream, buffer->data(), bytes);
      memory.buffer = *std::move(buffer);
      memory.home = memory.now = memory.buffer.data();
    }
  }
  stream->Synchronize();
  return absl::OkStatus();
}

void ParamStore::Redirect(int slab, Plane plane, void* copy) {
  PlaneMemory& memory = At(At(planes_, plane), slab);
  memory.now = copy != nullptr ? copy : memory.home;
  memory.whole = false;
}

void ParamStore::RedirectWhole(int slab, Plane plane, void* copy) {
  Redirect(slab, plane, copy);
  At(At(planes_, plane), slab).whole = true;
}

void* ParamStore::at(int slab, Plane plane, int64_t element) const {
  DELINK_CHECK(has(slab, plane));
  const PlaneMemory& memory = At(At(planes_, plane), slab);
  const int64_t begin = memory.whole ? 0 : held(slab, plane).begin;
  DELINK_CHECK_GE(element, begin);
  int64_t offset = (element - begin) * SizeOf(dtype(slab, plane));
  if (IsState(plane)) {
    const std::vector<SlabParam>& params = At(slabs_, slab).params;
    const auto after = std::upper_bound(
        params.begin(), params.end(), element,
        [](int64_t e, const SlabParam& param) { return e < param.offset; });
    const auto p = static_cast<size_t>(after - params.begin()) - 1;
    const StateLayout::Piece& piece = LayoutOf(slab, plane).pieces[p];
    DELINK_CHECK(piece.format.extent == StateExtent::kElements);
    offset = piece.at + (element - params[p].offset - piece.first) *
                            SizeOf(piece.format.storage, dtype(slab, plane));
  }
  DELINK_CHECK_LE(offset,
                  memory.whole ? whole_bytes(slab, plane) : bytes(slab, plane));
  return static_cast<char*>(memory.now) + offset;
}

ParamStore::StatePlace ParamStore::state(int slab, int state,
                                         size_t param) const {
  const Plane plane = StatePlane(state);
  const StateLayout::Piece& piece = LayoutOf(slab, plane).pieces[param];
  char* const memory = static_cast<char*>(At(At(planes_, plane), slab).now);
  StatePlace place{.format = piece.format,
                   .codec = {.storage = piece.format.storage,
                             .is_signed = At(options_.states, state).is_signed,
                             .exact = dtype(slab, plane)},
                   .held = piece.held,
                   .values = memory + piece.at};
  if (piece.format.storage == StateStorage::kBlock8) {
    place.scales = reinterpret_cast<float*>(memory + piece.scales);
  }
  return place;
}

int64_t ParamStore::bytes(Plane plane, Tier tier) const {
  int64_t total = 0;
  for (size_t s = 0; has(plane) && s < slabs_.size(); ++s) {
    const auto slab = static_cast<int>(s);
    if (PlacementOf(placement(slab), plane).tier != tier) continue;
    total += bytes(slab, plane);
  }
  return total;
}

int64_t ParamStore::state_bytes(Tier tier) const {
  int64_t total = bytes(Plane::kMaster, tier) + bytes(Plane::kLow, tier);
  for (size_t k = 0; k < options_.states.size(); ++k) {
    total += bytes(StatePlane(static_cast<int>(k)), tier);
  }
  return total;
}

namespace {

// Of all visited layers; where in_part(spec), those that a token uses.
template <typename InPart>
int64_t ParametersOf(const ParamStore& store, InPart in_part) {
  int64_t total = 0;
  for (const ParamDecl& decl : store.registry().decls) {
    if (!store.sharing().VisitsLayer(decl.layer, store.blocks())) continue;
    if (decl.link >= 0) continue;
    const Entries entries = EntriesOf(decl.spec);
    total += entries.elements() *
             (in_part(decl.spec) ? decl.spec.used : entries.count);
  }
  return total;
}

}  // namespace

int64_t ParamStore::unique_parameters() const {
  int64_t total = 0;
  for (const Slab& slab : layout_->slabs()) {
    for (const SlabParam& param : slab.params) total += param.elements;
  }
  return total;
}

int64_t ParamStore::virtual_parameters() const {
  return ParametersOf(*this, [](const ParamSpec&) { return false; });
}

int64_t ParamStore::active_parameters() const {
  return ParametersOf(*this,
                      [](const ParamSpec& spec) { return spec.used > 0; });
}

}  // namespace delink
