#include "framework/sharing/delinked_values.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/rng.h"
#include "framework/base/status_macros.h"
#include "framework/module/init_values.h"
#include "framework/sharing/state_change.h"
#include "framework/tensor/block8.h"

namespace delink {
namespace {

template <typename T>
void DivideBy(double divisor, std::span<T> values) {
  for (T& value : values) {
    value = static_cast<T>(static_cast<double>(value) / divisor);
  }
}

void DivideBy(double divisor, DType type, int64_t count, void* values) {
  const auto n = static_cast<size_t>(count);
  if (type == DType::kF64) {
    return DivideBy(divisor, std::span(static_cast<double*>(values), n));
  }
  DELINK_CHECK(type == DType::kF32);
  DivideBy(divisor, std::span(static_cast<float*>(values), n));
}

}  // namespace

DelinkedValues::DelinkedValues(ValueSource& before, Change change)
    : before_(before), change_(std::move(change)) {
  DELINK_CHECK_EQ(change_.origins.size(), change_.to.slabs().size());
  for (const LogicalTensor& tensor : change_.from.tensors()) {
    if (tensor.link.empty()) old_[{tensor.slab, tensor.param}] = &tensor;
  }
}

const SlabOrigin& DelinkedValues::OriginOf(const LogicalTensor& tensor) const {
  return At(change_.origins, tensor.slab);
}

const LogicalTensor& DelinkedValues::Old(const LogicalTensor& tensor) const {
  return *old_.at({OriginOf(tensor).slab, tensor.param});
}

const ParamDecl& DelinkedValues::DeclOf(const LogicalTensor& tensor) const {
  const Slab& slab = At(change_.to.slabs(), tensor.slab);
  return change_.to.registry().decl(slab.params[tensor.param].decl);
}

const StateSpec& DelinkedValues::SpecOf(const Field& field) const {
  const auto at =
      std::ranges::find(change_.states, field.state, &StateSpec::name);
  DELINK_CHECK(at != change_.states.end()) << "no state " << field.state;
  return *at;
}

const StateFormat& DelinkedValues::FormatOf(const Field& field,
                                            const LogicalTensor& tensor) const {
  return SpecOf(field).Of(KindOf(DeclOf(tensor), change_.to.blocks()));
}

StateCodec DelinkedValues::CodecOf(const Field& field,
                                   const LogicalTensor& tensor) const {
  return {.storage = FormatOf(field, tensor).storage,
          .is_signed = SpecOf(field).is_signed,
          .exact = type(field)};
}

Descriptor DelinkedValues::Has(const Field& field,
                               const LogicalTensor& tensor) const {
  if (OriginOf(tensor).fresh()) return Fresh(change_.to.ranks(), field, tensor);
  return before_.Has(field, Old(tensor));
}

Descriptor DelinkedValues::Owners(const Field& field,
                                  const LogicalTensor& tensor) const {
  if (OriginOf(tensor).fresh()) return Fresh(1, field, tensor);
  return before_.Owners(field, Old(tensor));
}

Descriptor DelinkedValues::Fresh(int ranks, const Field& field,
                                 const LogicalTensor& tensor) const {
  const bool is_state = field.kind == Field::Kind::kState;
  const Rect whole =
      WholeOf(StateShape(tensor.shape, is_state ? FormatOf(field, tensor).extent
                                                : StateExtent::kElements));
  Descriptor extents;
  if (whole.elements() == 0) return extents;
  for (int rank = 0; rank < ranks; ++rank) {
    extents.push_back({.rect = whole, .rank = rank, .pitch = whole.columns});
  }
  return extents;
}

absl::Status DelinkedValues::Read(const Field& field,
                                  const LogicalTensor& tensor,
                                  const Extent& extent, void* values) {
  const SlabOrigin& origin = OriginOf(tensor);
  if (field.kind != Field::Kind::kState) {
    if (!origin.fresh()) {
      return before_.Read(field, Old(tensor), extent, values);
    }
    InitWeight(tensor, type(field), extent.rect, values);
    return absl::OkStatus();
  }
  if (!BeginsAnew(origin, change_.policy)) {
    return ReadState(field, tensor, extent, values);
  }
  std::memset(
      values, 0,
      static_cast<size_t>(extent.rect.elements() * SizeOf(type(field))));
  return absl::OkStatus();
}

void DelinkedValues::InitWeight(const LogicalTensor& tensor, DType type,
                                const Rect& rect, void* values) const {
  const int64_t columns = WholeOf(tensor.shape).columns;
  DELINK_CHECK(rect.rows == 1 || rect.columns == columns);
  const ParamDecl& decl = DeclOf(tensor);
  const Init init = FreshInit(decl.spec, change_.growth);
  const RngKey key = InitKey(change_.growth.seed, decl.name);
  const int64_t begin = rect.row * columns + rect.column;
  if (type == DType::kF64) {
    return InitValues(init, key, begin, rect.elements(),
                      static_cast<double*>(values));
  }
  DELINK_CHECK(type == DType::kF32);
  InitValues(init, key, begin, rect.elements(), static_cast<float*>(values));
}

absl::Status DelinkedValues::ReadState(const Field& field,
                                       const LogicalTensor& tensor,
                                       const Extent& extent, void* values) {
  const LogicalTensor& old = Old(tensor);
  const Descriptor has = before_.Has(field, old);
  const auto all = std::ranges::find(has, extent.rank, &Extent::rank);
  DELINK_CHECK(all != has.end());
  const int64_t columns = all->rect.columns, count = extent.rect.elements();
  DELINK_CHECK(extent.rect.rows == 1 || extent.rect.columns == columns);
  const int64_t begin = extent.rect.row * columns + extent.rect.column;
  const Range asked{begin, begin + count};
  const StateCodec codec = CodecOf(field, tensor);
  // 8-bit values are rounded one block at a time.
  Range read = asked;
  if (codec.storage == StateStorage::kBlock8) {
    const int64_t first = tensor.offset;
    read.begin -= std::min(read.begin, (first + read.begin) % kBlock8);
    read.end = std::min(AlignUp(first + read.end, kBlock8) - first,
                        all->rect.elements());
  }
  const int64_t size = SizeOf(codec.exact);
  staging_.resize(static_cast<size_t>(read.size() * size));
  char* to = staging_.data();
  for (const Rect& rect : Cut(all->rect, read)) {
    DELINK_RETURN_IF_ERROR(before_.Read(field, old, Part(*all, rect), to));
    to += rect.elements() * size;
  }
  Divide(field, tensor, codec, read);
  std::memcpy(values, staging_.data() + (asked.begin - read.begin) * size,
              static_cast<size_t>(count * size));
  return absl::OkStatus();
}

// Divides the values in staging_, which are `range` of the parameter.
void DelinkedValues::Divide(const Field& field, const LogicalTensor& tensor,
                            const StateCodec& codec, Range range) {
  const int64_t element = tensor.offset + range.begin;
  codec.RoundTrip(element, range.size(), staging_.data());
  const double divisor =
      StateDivisor(OriginOf(tensor), change_.policy, SpecOf(field).degree);
  if (divisor == 1) return;
  DivideBy(divisor, codec.exact, range.size(), staging_.data());
  codec.RoundTrip(element, range.size(), staging_.data());
}

}  // namespace delink
