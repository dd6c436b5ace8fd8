#include "framework/sharing/gradient_pieces.h"

#include <algorithm>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// Copies the rows of an extent from `values` to their places in `piece`.
template <typename T>
void Unpack(const Extent& extent, const T* values, double* piece) {
  double* row = piece + extent.offset;
  for (int64_t r = 0; r < extent.rect.rows; ++r) {
    std::copy_n(values, extent.rect.columns, row);
    values += extent.rect.columns;
    row += extent.pitch;
  }
}

}  // namespace

GradientPieces::GradientPieces(const ParamStore& store,
                               std::vector<const LogicalTensor*> tensors,
                               const Rect& within, int64_t most,
                               Communicator& comm)
    : store_(store),
      values_(store),
      tensors_(std::move(tensors)),
      within_(within),
      most_(most),
      comm_(comm),
      pieces_(tensors_.size()) {
  for (const LogicalTensor* const tensor : tensors_) {
    Move& move = moves_.emplace_back();
    move.field.kind = Field::Kind::kGradient;
    move.from = tensor;
    move.to = {tensor};
  }
}

absl::StatusOr<bool> GradientPieces::Next() {
  wanted_ = NextOf(ReducedOf(store_.layout(), *tensors_[0]));
  if (wanted_.empty()) return false;
  size_t count = 0;
  for (const Extent& extent : wanted_) {
    if (extent.rank != store_.rank()) continue;
    count += static_cast<size_t>(extent.rect.elements());
  }
  for (std::vector<double>& piece : pieces_) piece.resize(count);
  DELINK_RETURN_IF_ERROR(MoveValues(*this, *this, moves_, comm_));
  begin_ += most_;
  return true;
}

Descriptor GradientPieces::NextOf(const Descriptor& reduced) const {
  Descriptor next;
  int64_t first = 0;  // element of the extent, among its rank's
  int rank = -1;
  for (const Extent& extent : reduced) {
    if (std::exchange(rank, extent.rank) != extent.rank) first = 0;
    const Rect own = Overlap(extent.rect, within_);
    const int64_t all = own.elements();
    const Range here{std::clamp<int64_t>(begin_ - first, 0, all),
                     std::clamp<int64_t>(begin_ + most_ - first, 0, all)};
    int64_t offset = first + here.begin - begin_;
    for (const Rect& rect : Cut(own, here)) {
      next.push_back({.rect = rect,
                      .rank = rank,
                      .offset = offset,
                      .pitch = rect.columns});
      offset += rect.elements();
    }
    first += all;
  }
  return next;
}

DType GradientPieces::type(const Field& field) const {
  return values_.type(field);
}

// A sharded gradient is with the owners of its slab.
Descriptor GradientPieces::Has(const Field&,
                               const LogicalTensor& tensor) const {
  const Layout& layout = store_.layout();
  return layout.options().zero >= 2
             ? OwnersOf(layout, tensor, StateExtent::kElements)
             : ReducedOf(layout, tensor);
}

Descriptor GradientPieces::Owners(const Field& field,
                                  const LogicalTensor& tensor) const {
  return Has(field, tensor);
}

absl::Status GradientPieces::Read(const Field& field,
                                  const LogicalTensor& tensor,
                                  const Extent& extent, void* values) {
  return values_.Read(field, tensor, extent, values);
}

Descriptor GradientPieces::Wants(const Field&, const LogicalTensor&) const {
  return wanted_;
}

absl::Status GradientPieces::Write(const Field& field,
                                   const LogicalTensor& tensor,
                                   const Extent& extent, const void* values) {
  const auto at = std::find(tensors_.begin(), tensors_.end(), &tensor);
  DELINK_CHECK(at != tensors_.end());
  double* const piece =
      pieces_[static_cast<size_t>(at - tensors_.begin())].data();
  if (type(field) == DType::kF64) {
    Unpack(extent, static_cast<const double*>(values), piece);
  } else {
    DELINK_CHECK(type(field) == DType::kF32);
    Unpack(extent, static_cast<const float*>(values), piece);
  }
  return absl::OkStatus();
}

}  // namespace delink
