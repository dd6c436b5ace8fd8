#include "recipes/convert/shared_values.h"

#include <chrono>

#include "framework/base/at.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// One reads while the other writes, which HDF5 lets only one thread do.
constexpr int kAtOnce = 2;
constexpr auto kPatience = std::chrono::seconds(2);

}  // namespace

SharedValues::SharedValues(
    ValueSource& values, const Layout& layout,
    const std::function<void(int64_t, int64_t)>& progress)
    : values_(values),
      progress_(progress),
      ranks_(layout.ranks()),
      left_(static_cast<size_t>(layout.ranks())),
      begun_(static_cast<size_t>(layout.ranks())) {
  for (const LogicalTensor& tensor : layout.tensors()) {
    if (!tensor.link.empty()) continue;
    for (const Extent& extent :
         OwnersOf(layout, tensor, StateExtent::kElements)) {
      At(left_, extent.rank) += extent.rect.elements();
      all_ += extent.rect.elements();
    }
  }
}

Descriptor SharedValues::Has(const Field& field,
                             const LogicalTensor& tensor) const {
  Descriptor all;
  for (int rank = 0; rank < ranks_; ++rank) {
    for (Extent& extent : values_.Owners(field, tensor)) {
      extent.rank = rank;
      all.push_back(extent);
    }
  }
  return all;
}

void SharedValues::AwaitTurn(size_t rank) {
  MutexLock lock(mutex_);
  if (begun_[rank]) return;
  int64_t before = -1;
  while (reading_ >= kAtOnce && done_ != before) {
    before = done_;
    lock.WaitFor(turns_, kPatience);
  }
  begun_[rank] = true;
  ++reading_;
}

absl::Status SharedValues::Read(const Field& field, const LogicalTensor& tensor,
                                const Extent& extent, void* values) {
  const auto rank = static_cast<size_t>(extent.rank);
  AwaitTurn(rank);
  DELINK_RETURN_IF_ERROR(values_.Read(field, tensor, extent, values));
  const MutexLock lock(mutex_);
  done_ += extent.rect.elements();
  At(left_, rank) -= extent.rect.elements();
  if (left_[rank] == 0) {
    --reading_;
    turns_.notify_one();
  }
  if (progress_) progress_(done_, all_);
  return absl::OkStatus();
}

}  // namespace delink
