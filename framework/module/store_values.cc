#include "framework/module/store_values.h"

#include <algorithm>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/at.h"
#include "framework/module/state_codec.h"
#include "framework/module/store_place.h"
#include "framework/tensor/block8.h"

namespace delink {
namespace {

StateCodec AsIs(DType type) { return {.exact = type}; }

}  // namespace

StoreValues::StoreValues(ParamStore& store) : StoreValues(store, true) {}
StoreValues::StoreValues(const ParamStore& store) : StoreValues(store, false) {}
StoreValues::StoreValues(const ParamStore& store, bool writable)
    : store_(store),
      writable_(writable),
      stream_(store.device().NewStream()),
      parts_(std::make_unique<BlockParts>()) {}
StoreValues::~StoreValues() = default;

int StoreValues::StateOf(const Field& field) const {
  const std::vector<StateSpec>& states = store_.states();
  const auto at = std::find_if(
      states.begin(), states.end(),
      [&](const StateSpec& spec) { return spec.name == field.state; });
  return at == states.end() ? -1 : static_cast<int>(at - states.begin());
}

Plane StoreValues::PlaneOf(const Field& field,
                           const LogicalTensor& tensor) const {
  switch (field.kind) {
    case Field::Kind::kParameters:
      if (store_.IsExact(tensor)) return Plane::kWeight;
      if (IsSplit(tensor)) return Plane::kLow;
      return store_.has(Plane::kMaster) ? Plane::kMaster : Plane::kWeight;
    case Field::Kind::kWeight:
      return Plane::kWeight;
    case Field::Kind::kMaster:
      return Plane::kMaster;
    case Field::Kind::kLow:
      return Plane::kLow;
    case Field::Kind::kGradient:
      return Plane::kGradient;
    case Field::Kind::kState:
      break;
  }
  return StatePlane(StateOf(field));
}

bool StoreValues::HasAny(const Field& field,
                         const LogicalTensor& tensor) const {
  if (IsMeta(store_.device().kind())) return false;
  switch (field.kind) {
    case Field::Kind::kState:
      return StateOf(field) >= 0;
    case Field::Kind::kWeight:
    case Field::Kind::kMaster:
    case Field::Kind::kLow:
      if (store_.IsExact(tensor)) return false;
      break;
    default:
      break;
  }
  return store_.has(PlaneOf(field, tensor));
}

StateFormat StoreValues::FormatOf(const Field& field,
                                  const LogicalTensor& tensor) const {
  if (field.kind != Field::Kind::kState) return {};
  const Slab& slab = At(store_.layout().slabs(), tensor.slab);
  const ParamDecl& decl =
      store_.registry().decl(At(slab.params, tensor.param).decl);
  return At(store_.states(), StateOf(field)).Of(KindOf(decl, store_.blocks()));
}

StateCodec StoreValues::CodecOf(const Field& field,
                                const LogicalTensor& tensor) const {
  StateCodec codec = AsIs(type(field));
  if (field.kind == Field::Kind::kState) {
    codec.storage = FormatOf(field, tensor).storage;
    codec.is_signed = At(store_.states(), StateOf(field)).is_signed;
  } else if (store_.TypeOf(PlaneOf(field, tensor), store_.IsExact(tensor)) !=
             codec.exact) {
    codec.storage = StateStorage::kBF16;
  }
  return codec;
}

DType StoreValues::type(const Field& field) const {
  switch (field.kind) {
    case Field::Kind::kWeight:
      return store_.options().dtype;
    case Field::Kind::kLow:
      return DType::kBF16;
    default:
      break;
  }
  return StatisticsOf(store_.options().dtype);
}

Descriptor StoreValues::In(Plane plane, const Field& field,
                           const LogicalTensor& tensor) const {
  const Layout& layout = store_.layout();
  if (plane == Plane::kWeight) return WeightsOf(layout, tensor);
  const Range locals = layout.LocalSlabsOfLogical(tensor.slab);
  // In a group of one rank nothing is sharded; the rank owns everything.
  bool sharded = false;
  for (int64_t local = locals.begin; local < locals.end; ++local) {
    const PlacementRow& row = At(layout.placement().rows, local);
    sharded = sharded || PlacementOf(row, plane).sharded;
  }
  return DescriptorOf(layout, tensor, FormatOf(field, tensor).extent, sharded);
}

Descriptor StoreValues::Has(const Field& field,
                            const LogicalTensor& tensor) const {
  if (!HasAny(field, tensor)) return {};
  return In(PlaneOf(field, tensor), field, tensor);
}

Descriptor StoreValues::Owners(const Field& field,
                               const LogicalTensor& tensor) const {
  if (!HasAny(field, tensor)) return {};
  return OwnersOf(store_.layout(), tensor, FormatOf(field, tensor).extent);
}

Descriptor StoreValues::Wants(const Field& field,
                              const LogicalTensor& tensor) const {
  if (!HasAny(field, tensor)) return {};
  const bool all = field.kind == Field::Kind::kParameters;
  return In(all ? Plane::kWeight : PlaneOf(field, tensor), field, tensor);
}

int64_t StoreValues::grain(const Field& field,
                           const LogicalTensor& tensor) const {
  if (!HasAny(field, tensor)) return 1;
  if (CodecOf(field, tensor).storage != StateStorage::kBlock8) return 1;
  const Layout& layout = store_.layout();
  const Range locals = layout.LocalSlabsOfLogical(tensor.slab);
  for (int64_t l = locals.begin; l < locals.end; ++l) {
    const LocalSlab& local = At(layout.local_slabs(), l);
    const auto at = std::ranges::find(local.params, tensor.param);
    if (at == local.params.end()) continue;
    const auto p = static_cast<size_t>(at - local.params.begin());
    const SlabParam& here = local.slab.params[p];
    if (here.elements != tensor.shape.elements() ||
        here.offset % kBlock8 != tensor.offset % kBlock8) {
      return 1;
    }
  }
  return kBlock8;
}

void StoreValues::AsKept(const Field& field, const LogicalTensor& tensor,
                         const Extent& extent, void* values) const {
  if (!HasAny(field, tensor)) return;
  const int64_t count = extent.rect.elements();
  if (field.kind == Field::Kind::kParameters && IsSplit(tensor)) {
    const std::span exact(static_cast<float*>(values),
                          static_cast<size_t>(count));
    std::vector<uint16_t> weights(exact.size()), low(exact.size());
    EncodeWeights(exact, weights.data(), low.data());
    DecodeWeights(weights.data(), low.data(), exact);
    return;
  }
  const LocalSlab& local = At(store_.layout().local_slabs(), extent.slab);
  const SlabParam& param = At(local.slab.params, extent.param);
  const StorePlace all{.codec = CodecOf(field, tensor),
                       .held = {0, param.elements},
                       .element = param.offset};
  if (all.is_8_bit() && grain(field, tensor) == 1) return;
  DELINK_CHECK(!all.is_8_bit() || all.HasWholeBlocks(extent))
      << tensor.name << ": a block of " << kBlock8 << " values is cut";
  all.codec.RoundTrip(param.offset + extent.offset, count, values);
}

StorePlace StoreValues::PlaceIn(Plane plane, const StateCodec& codec,
                                const Extent& extent) const {
  DELINK_CHECK_EQ(extent.rank, store_.rank());
  const int slab = store_.SlabOf(extent.slab);
  const SlabParam& param = At(store_.slab(slab).params, extent.param);
  StorePlace place{.codec = codec, .element = param.offset};
  if (IsState(plane)) {
    const int state = static_cast<int>(plane) - static_cast<int>(StatePlane(0));
    const ParamStore::StatePlace kept = store_.state(slab, state, extent.param);
    place.held = kept.held;
    place.values = static_cast<char*>(kept.values);
    place.scales = kept.scales;
    return place;
  }
  const Range held = store_.held(slab, plane);
  place.held.begin =
      std::clamp<int64_t>(held.begin - param.offset, 0, param.elements);
  place.held.end = std::clamp<int64_t>(held.end - param.offset,
                                       place.held.begin, param.elements);
  if (place.held.size() > 0) {
    place.values = static_cast<char*>(
        store_.at(slab, plane, param.offset + place.held.begin));
  }
  return place;
}

StorePlace StoreValues::PlaceOf(const Field& field, const LogicalTensor& tensor,
                                const Extent& extent) const {
  const StorePlace place =
      PlaceIn(PlaneOf(field, tensor), CodecOf(field, tensor), extent);
  DELINK_CHECK(place.Holds(extent))
      << tensor.name << " is not on rank " << store_.rank();
  return place;
}

// Writes the weights, and the held part of the master or of its lower halves.
void StoreValues::WriteParameters(const LogicalTensor& tensor,
                                  const Extent& extent, const void* values) {
  const DType type = store_.TypeOf(Plane::kWeight, store_.IsExact(tensor));
  if (IsSplit(tensor)) {
    const std::span exact(static_cast<const float*>(values),
                          static_cast<size_t>(extent.rect.elements()));
    std::vector<uint16_t> weights(exact.size()), low(exact.size());
    EncodeWeights(exact, weights.data(), low.data());
    WritePlace(store_.device(), *stream_,
               PlaceIn(Plane::kWeight, AsIs(type), extent), extent,
               weights.data());
    WritePlace(store_.device(), *stream_,
               PlaceIn(Plane::kLow, AsIs(type), extent), extent, low.data());
    return;
  }
  StateCodec codec = AsIs(StatisticsOf(type));
  if (store_.has(Plane::kMaster) && !store_.IsExact(tensor)) {
    WritePlace(store_.device(), *stream_,
               PlaceIn(Plane::kMaster, codec, extent), extent, values);
  }
  if (type != codec.exact) codec.storage = StateStorage::kBF16;
  WritePlace(store_.device(), *stream_, PlaceIn(Plane::kWeight, codec, extent),
             extent, values);
}

absl::Status StoreValues::Read(const Field& field, const LogicalTensor& tensor,
                               const Extent& extent, void* values) {
  if (!HasAny(field, tensor) || extent.rect.elements() == 0)
    return absl::OkStatus();
  const StorePlace place = PlaceOf(field, tensor, extent);
  if (field.kind != Field::Kind::kParameters || !IsSplit(tensor)) {
    ReadPlace(store_.device(), *stream_, place, extent, values);
    return absl::OkStatus();
  }
  const std::span exact(static_cast<float*>(values),
                        static_cast<size_t>(extent.rect.elements()));
  const StateCodec half = AsIs(DType::kBF16);
  std::vector<uint16_t> weights(exact.size()), low(exact.size());
  ReadPlace(store_.device(), *stream_, PlaceIn(Plane::kWeight, half, extent),
            extent, weights.data());
  ReadPlace(store_.device(), *stream_, PlaceIn(Plane::kLow, half, extent),
            extent, low.data());
  DecodeWeights(weights.data(), low.data(), exact);
  return absl::OkStatus();
}

absl::Status StoreValues::Write(const Field& field, const LogicalTensor& tensor,
                                const Extent& extent, const void* values) {
  DELINK_CHECK(writable_) << "a source only";
  if (!HasAny(field, tensor) || extent.rect.elements() == 0)
    return absl::OkStatus();
  if (field.kind == Field::Kind::kParameters) {
    WriteParameters(tensor, extent, values);
    return absl::OkStatus();
  }
  const StorePlace place = PlaceOf(field, tensor, extent);
  if (place.is_8_bit()) {
    parts_->Write(store_.device(), *stream_, place, extent,
                  static_cast<const float*>(values));
  } else {
    WritePlace(store_.device(), *stream_, place, extent, values);
  }
  return absl::OkStatus();
}

bool StoreValues::Copy(ValueSource& source, const Field& field,
                       const LogicalTensor& from, const Extent& extent,
                       const LogicalTensor& to, const Extent& target) {
  DELINK_CHECK(writable_) << "a source only";
  const auto* const other = dynamic_cast<const StoreValues*>(&source);
  Device& device = store_.device();
  if (other == nullptr || &other->store_.device() != &device) return false;
  if (!HasAny(field, to) || !other->HasAny(field, from)) return false;
  if (extent.rect.elements() == 0) return true;
  if (field.kind == Field::Kind::kParameters &&
      (PlaneOf(field, to) != Plane::kWeight ||
       other->PlaneOf(field, from) != Plane::kWeight)) {
    return false;
  }
  const StorePlace there = other->PlaceOf(field, from, extent);
  const StorePlace here = PlaceOf(field, to, target);
  if (there.codec != here.codec) return false;
  return CopyPlace(device, *stream_, there, extent, here, target);
}

}  // namespace delink
