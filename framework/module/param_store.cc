#include "framework/module/param_store.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

const PlanePlacement& PlacementOf(const PlacementRow& row, Plane plane) {
  switch (plane) {
    case Plane::kWeight:
      return row.weight;
    case Plane::kGradient:
      return row.gradient;
    default:
      break;
  }
  return row.state;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParamStore>> ParamStore::Create(
    Device& device, const ParamRegistry& registry, int blocks,
    const SharingMap& sharing, int zero, const Options& options) {
  DELINK_CHECK(!options.bf16_gradients || options.dtype == DType::kBF16);
  std::unique_ptr<ParamStore> store(new ParamStore);
  store->device_ = &device;
  store->registry_ = &registry;
  store->options_ = options;
  store->blocks_ = blocks;
  store->sharing_ = sharing;
  store->slabs_ = LayOutSlabs(registry, blocks, sharing);
  store->updates_.assign(store->slabs_.size(), 0);
  store->placement_ = PlacementTable::DataParallel(
      store->slabs_, store->WholeSlabs(), zero, options.ranks);
  store->LayOutStates();
  store->BuildBindings();
  DELINK_RETURN_IF_ERROR(store->AllocatePlanes());
  return store;
}

const ParamDecl& ParamStore::DeclOf(int slab, size_t param) const {
  const SlabParam& place = At(slabs_, slab).params[param];
  return registry_->decl(place.decl);
}

// Slabs that hold a tensor which an update must see whole.
std::vector<bool> ParamStore::WholeSlabs() const {
  const auto whole = [&](const ParamDecl& decl) {
    switch (options_.whole_tensors) {
      case WholeTensors::kNone:
        return false;
      case WholeTensors::kHidden:
        return KindOf(decl, blocks_) == ParamKind::kHidden;
      case WholeTensors::kAll:
        break;
    }
    return true;
  };
  std::vector<bool> result(slabs_.size(), false);
  for (size_t s = 0; s < slabs_.size(); ++s) {
    for (size_t p = 0; p < slabs_[s].params.size(); ++p) {
      if (whole(DeclOf(static_cast<int>(s), p))) result[s] = true;
    }
  }
  return result;
}

void ParamStore::LayOutStates() {
  DELINK_CHECK_LE(options_.states.size(), size_t{kMaxStates});
  const DType exact = StatisticsOf(options_.dtype);
  for (const StateSpec& spec : options_.states) {
    std::vector<StateLayout>& layouts = state_layouts_.emplace_back();
    for (size_t s = 0; s < slabs_.size(); ++s) {
      const int slab = static_cast<int>(s);
      layouts.push_back(LayOutState(slabs_[s], *registry_, blocks_, spec, exact,
                                    held(slab, Plane::kState0).begin,
                                    PlaneElements(slab, Plane::kState0)));
    }
  }
}

void ParamStore::BuildBindings() {
  const size_t layers = static_cast<size_t>(blocks_) + 2;
  for (const ParamDecl& decl : registry_->decls) {
    DELINK_CHECK_LT(static_cast<size_t>(decl.layer), layers) << decl.name;
  }
  bindings_.resize(layers);
  slabs_of_layer_.resize(layers);
  for (size_t s = 0; s < slabs_.size(); ++s) {
    for (const int layer : slabs_[s].layers) {
      At(slabs_of_layer_, layer).push_back(static_cast<int>(s));
    }
  }
  std::map<std::string, Param*> params;
  std::map<std::string, int> layer_of;
  for (const ParamDecl& decl : registry_->decls) {
    const bool first = params.emplace(decl.name, decl.param.get()).second;
    DELINK_CHECK(first) << "parameter " << decl.name << " is declared twice";
    layer_of[decl.name] = decl.layer;
  }
  for (const LogicalTensor& tensor : logical_tensors()) {
    const auto layer = static_cast<size_t>(layer_of[tensor.name]);
    const std::vector<int>& slabs = slabs_of_layer_[layer];
    const auto at = std::find(slabs.begin(), slabs.end(), tensor.slab);
    DELINK_CHECK(at != slabs.end());
    bindings_[layer].push_back({.param = params[tensor.name],
                                .shape = tensor.shape,
                                .slab = tensor.slab,
                                .index = static_cast<int>(at - slabs.begin()),
                                .offset = tensor.offset});
  }
  FindStrangers();
}

void ParamStore::FindStrangers() {
  strangers_.resize(bindings_.size());
  for (size_t layer = 0; layer < bindings_.size(); ++layer) {
    std::set<std::pair<int, int64_t>> bound;
    for (const Binding& b : bindings_[layer]) bound.emplace(b.slab, b.offset);
    const std::vector<int>& slabs = slabs_of_layer_[layer];
    for (size_t i = 0; i < slabs.size(); ++i) {
      for (const SlabParam& param : At(slabs_, slabs[i]).params) {
        if (bound.contains({slabs[i], param.offset})) continue;
        strangers_[layer].push_back({.slab = slabs[i],
                                     .index = static_cast<int>(i),
                                     .offset = param.offset,
                                     .elements = param.elements});
      }
    }
  }
}

bool ParamStore::has(Plane plane) const { return !At(planes_, plane).empty(); }

DType ParamStore::dtype(Plane plane) const {
  switch (plane) {
    case Plane::kWeight:
      return options_.dtype;
    case Plane::kGradient:
      return options_.bf16_gradients ? DType::kBF16
                                     : StatisticsOf(options_.dtype);
    case Plane::kLow:
      return DType::kBF16;  // 16 bits
    default:
      return StatisticsOf(options_.dtype);
  }
}

Range ParamStore::OwnedBy(int slab, int rank) const {
  const auto s = static_cast<size_t>(slab);
  const int owner = placement_.rows[s].owner;
  if (owner == kNoOwner) return ShardRange(slabs_[s], rank, options_.ranks);
  return {0, owner == rank ? slabs_[s].elements : 0};
}

Range ParamStore::held(int slab, Plane plane) const {
  const auto s = static_cast<size_t>(slab);
  if (PlacementOf(placement_.rows[s], plane).sharded) return owned(slab);
  return {0, slabs_[s].elements};
}

int64_t ParamStore::PlaneElements(int slab, Plane plane) const {
  const Slab& s = At(slabs_, slab);
  const int64_t shard = s.ShardElements(options_.ranks);
  const PlacementRow& row = placement_.row(slab);
  if (!PlacementOf(row, plane).sharded) return shard * options_.ranks;
  if (row.owner == kNoOwner) return shard;
  return row.owner == options_.rank ? s.elements : 0;
}

int64_t ParamStore::bytes(int slab, Plane plane) const {
  if (IsState(plane)) return LayoutOf(slab, plane).bytes;
  return PlaneElements(slab, plane) * SizeOf(dtype(plane));
}

bool ParamStore::Wanted(Plane plane) const {
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

int64_t ParamStore::WantedBytes() const {
  int64_t bytes = 0;
  for (int p = 0; p < kPlanes; ++p) {
    const auto plane = static_cast<Plane>(p);
    if (!Wanted(plane)) continue;
    for (size_t s = 0; s < slabs_.size(); ++s) {
      bytes += this->bytes(static_cast<int>(s), plane);
    }
  }
  return bytes;
}

// What the device's ledger calls it.
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

absl::Status ParamStore::AllocatePlanes() {
  planes_.resize(kPlanes);
  const std::unique_ptr<Stream> stream = device_->NewStream();
  for (int p = 0; p < kPlanes; ++p) {
    const auto plane = static_cast<Plane>(p);
    if (!Wanted(plane)) continue;
    for (size_t s = 0; s < slabs_.size(); ++s) {
      const int64_t bytes = this->bytes(static_cast<int>(s), plane);
      absl::StatusOr<Buffer> buffer = Buffer::Allocate(
          *device_, bytes, absl::StrCat(NameOf(plane), " of ", slabs_[s].name));
      if (!buffer.ok()) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "parameters of ", slabs_[s].name, ": ", buffer.status().message(),
            "; weights, gradients and optimizer state need ", WantedBytes(),
            " bytes in all; share more layers (stage.share), shard the state "
            "over more ranks (stage.parallel.zero = 1) or make the model "
            "smaller"));
      }
      device_->FillZero(*stream, buffer->data(), bytes);
      At(planes_, p).push_back(*std::move(buffer));
    }
  }
  stream->Synchronize();
  return absl::OkStatus();
}

void* ParamStore::at(int slab, Plane plane, int64_t element) const {
  DELINK_CHECK(has(plane));
  const Range range = held(slab, plane);
  DELINK_CHECK_GE(element, range.begin);
  const Buffer& buffer = At(At(planes_, plane), slab);
  int64_t offset = (element - range.begin) * SizeOf(dtype(plane));
  if (IsState(plane)) {
    const std::vector<SlabParam>& params = At(slabs_, slab).params;
    const auto after = std::upper_bound(
        params.begin(), params.end(), element,
        [](int64_t e, const SlabParam& param) { return e < param.offset; });
    const auto p = static_cast<size_t>(after - params.begin()) - 1;
    const StateLayout::Piece& piece = LayoutOf(slab, plane).pieces[p];
    DELINK_CHECK(piece.format.extent == StateExtent::kElements);
    offset = piece.at + (element - params[p].offset - piece.first) *
                            SizeOf(piece.format.storage, dtype(plane));
  }
  DELINK_CHECK_LE(offset, buffer.bytes());
  return buffer.at(offset);
}

void ParamStore::Bind(int layer, const std::vector<bool>* written,
                      const std::vector<void*>* gradients) {
  const DType gradient_dtype = dtype(Plane::kGradient);
  const auto gradient_at = [&](int slab, size_t index, int64_t offset) {
    if (gradients == nullptr || (*gradients)[index] == nullptr) {
      return at(slab, Plane::kGradient, offset);
    }
    return static_cast<void*>(static_cast<char*>((*gradients)[index]) +
                              offset * SizeOf(gradient_dtype));
  };
  for (const Binding& b : At(bindings_, layer)) {
    const Tensor weight(at(b.slab, Plane::kWeight, b.offset), options_.dtype,
                        b.shape);
    Tensor grad;
    bool accumulate = false;
    if (written != nullptr) {
      const auto index = static_cast<size_t>(b.index);
      grad =
          Tensor(gradient_at(b.slab, index, b.offset), gradient_dtype, b.shape);
      accumulate = (*written)[index];
    }
    b.param->Bind(weight, grad, accumulate);
  }
  strange_gradients_.clear();
  if (written == nullptr) return;
  for (const Stranger& s : At(strangers_, layer)) {
    const auto index = static_cast<size_t>(s.index);
    if ((*written)[index]) continue;
    strange_gradients_.emplace_back(gradient_at(s.slab, index, s.offset),
                                    gradient_dtype, Shape{s.elements});
  }
}

void ParamStore::FinishGradients(int layer, Stream& stream) {
  for (const Binding& b : At(bindings_, layer)) {
    if (b.param->written()) continue;
    const Tensor& grad = b.param->grad();
    device_->FillZero(stream, grad.data(), grad.bytes());
  }
  for (const Tensor& grad : strange_gradients_) {
    device_->FillZero(stream, grad.data(), grad.bytes());
  }
}

int64_t ParamStore::bytes(Plane plane) const {
  int64_t total = 0;
  for (const Buffer& buffer : At(planes_, plane)) {
    total += buffer.bytes();
  }
  return total;
}

int64_t ParamStore::state_bytes() const {
  int64_t total = bytes(Plane::kMaster) + bytes(Plane::kLow);
  for (size_t k = 0; k < options_.states.size(); ++k) {
    total += bytes(StatePlane(static_cast<int>(k)));
  }
  return total;
}

int64_t ParamStore::unique_parameters() const {
  int64_t total = 0;
  for (const Slab& slab : slabs_) {
    for (const SlabParam& param : slab.params) total += param.elements;
  }
  return total;
}

int64_t ParamStore::virtual_parameters() const {
  int64_t total = 0;
  for (const ParamDecl& decl : registry_->decls) {
    if (decl.link < 0) total += decl.spec.shape.elements();
  }
  return total;
}

}  // namespace delink
