#include "recipes/convert/shared_values.h"

#include "framework/base/status_macros.h"

namespace delink {

SharedValues::SharedValues(
    ValueSource& values, const Layout& layout,
    const std::function<void(int64_t, int64_t)>& progress)
    : values_(values), progress_(progress), ranks_(layout.ranks()) {
  for (const LogicalTensor& tensor : layout.tensors()) {
    if (tensor.link.empty()) all_ += tensor.shape.elements();
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

absl::Status SharedValues::Read(const Field& field, const LogicalTensor& tensor,
                                const Extent& extent, void* values) {
  DELINK_RETURN_IF_ERROR(values_.Read(field, tensor, extent, values));
  const MutexLock lock(mutex_);
  done_ += extent.rect.elements();
  if (progress_) progress_(done_, all_);
  return absl::OkStatus();
}

}  // namespace delink
