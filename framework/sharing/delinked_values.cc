#include "framework/sharing/delinked_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/tensor/block8.h"

namespace delink {
namespace {

template <typename T>
void Divide(std::span<T> values, double divisor) {
  for (T& value : values) {
    value = static_cast<T>(static_cast<double>(value) / divisor);
  }
}

void Divide(DType type, int64_t count, void* values, double divisor) {
  const auto n = static_cast<size_t>(count);
  if (type == DType::kF64) {
    return Divide(std::span(static_cast<double*>(values), n), divisor);
  }
  DELINK_CHECK(type == DType::kF32);
  Divide(std::span(static_cast<float*>(values), n), divisor);
}

}  // namespace

DelinkedValues::DelinkedValues(ValueSource& before, const Layout& layout,
                               std::vector<StateSpec> states,
                               std::vector<SlabOrigin> origins,
                               StatePolicy policy)
    : before_(before),
      layout_(layout),
      states_(std::move(states)),
      origins_(std::move(origins)),
      policy_(policy) {
  DELINK_CHECK_EQ(origins_.size(), layout_.slabs().size());
}

const StateSpec& DelinkedValues::SpecOf(const Field& field) const {
  const auto at = std::ranges::find(states_, field.state, &StateSpec::name);
  DELINK_CHECK(at != states_.end()) << "no state " << field.state;
  return *at;
}

StateCodec DelinkedValues::CodecOf(const Field& field,
                                   const LogicalTensor& tensor) const {
  const StateSpec& spec = SpecOf(field);
  const SlabParam& param =
      At(layout_.slabs(), tensor.slab).params[tensor.param];
  const ParamKind kind =
      KindOf(layout_.registry().decl(param.decl), layout_.blocks());
  return {.storage = spec.Of(kind).storage,
          .is_signed = spec.is_signed,
          .exact = type(field)};
}

absl::Status DelinkedValues::Read(const Field& field,
                                  const LogicalTensor& tensor,
                                  const Extent& extent, void* values) {
  if (field.kind != Field::Kind::kState) {
    return before_.Read(field, tensor, extent, values);
  }
  const bool changed = At(origins_, tensor.slab).changed();
  if (policy_ != StatePolicy::kReset || !changed) {
    return ReadState(field, tensor, extent, values);
  }
  std::memset(
      values, 0,
      static_cast<size_t>(extent.rect.elements() * SizeOf(type(field))));
  return absl::OkStatus();
}

absl::Status DelinkedValues::ReadState(const Field& field,
                                       const LogicalTensor& tensor,
                                       const Extent& extent, void* values) {
  const Descriptor has = before_.Has(field, tensor);
  const auto all = std::ranges::find(has, extent.rank, &Extent::rank);
  DELINK_CHECK(all != has.end());
  const int64_t columns = all->rect.columns, count = extent.rect.elements();
  DELINK_CHECK(extent.rect.rows == 1 || extent.rect.columns == columns);
  const int64_t begin = extent.rect.row * columns + extent.rect.column;
  const Range asked{begin, begin + count};
  const StateCodec codec = CodecOf(field, tensor);
  // Values of 8 bits are rounded a block at a time.
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
    DELINK_RETURN_IF_ERROR(before_.Read(field, tensor, Part(*all, rect), to));
    to += rect.elements() * size;
  }
  Change(field, tensor, codec, read);
  std::memcpy(values, staging_.data() + (asked.begin - read.begin) * size,
              static_cast<size_t>(count * size));
  return absl::OkStatus();
}

// What has been read, values `range` of the parameter.
void DelinkedValues::Change(const Field& field, const LogicalTensor& tensor,
                            const StateCodec& codec, Range range) {
  const int64_t element = tensor.offset + range.begin;
  codec.RoundTrip(element, range.size(), staging_.data());
  const SlabOrigin& origin = At(origins_, tensor.slab);
  if (policy_ != StatePolicy::kScale || !origin.changed()) return;
  const double n = static_cast<double>(origin.before) / origin.after;
  Divide(codec.exact, range.size(), staging_.data(),
         std::pow(n, SpecOf(field).degree));
  codec.RoundTrip(element, range.size(), staging_.data());
}

}  // namespace delink
