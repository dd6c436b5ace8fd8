#include "framework/checkpoint/rank_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/layout.h"

namespace delink::checkpoint {

absl::StatusOr<RankFile> RankFile::Create(const std::string& path,
                                          const FilePlan& plan, int rank,
                                          DType type) {
  DELINK_ASSIGN_OR_RETURN(hdf5::File file, hdf5::File::Create(path));
  return RankFile(std::move(file), plan, rank, type);
}

absl::Status RankFile::Begin(const Field& field, int slab) {
  open_.clear();
  for (auto& [place, part] : plan_->PartsOf(field, slab)) {
    const auto& [rank, local] = place;
    if (rank != rank_) continue;
    DELINK_ASSIGN_OR_RETURN(hdf5::Dataset dataset,
                            file_.CreateDataset(plan_->DatasetOf(field, local),
                                                ElementOf(type_), {part.size}));
    const auto at =
        open_.emplace(local, Open{std::move(part), std::move(dataset)}).first;
    DELINK_RETURN_IF_ERROR(FillPadding(at->second));
  }
  return absl::OkStatus();
}

// Between values: what is never written is undefined.
absl::Status RankFile::FillPadding(Open& open) const {
  const auto fill = [&](int64_t begin, int64_t end) {
    if (begin >= end) return absl::OkStatus();
    const std::vector<char> zeros(
        static_cast<size_t>((end - begin) * SizeOf(type_)));
    return open.dataset.Write(ElementOf(type_), begin, end - begin,
                              zeros.data());
  };
  int64_t end = 0;
  for (const OwnedPart::Values& values : open.part.params) {
    if (values.count == 0) continue;
    DELINK_RETURN_IF_ERROR(fill(end, values.at));
    end = values.at + values.count;
  }
  return fill(end, open.part.size);
}

absl::Status RankFile::Close() {
  open_.clear();
  return file_.Close();
}

Descriptor RankFile::Wants(const Field& field,
                           const LogicalTensor& tensor) const {
  return plan_->Writers(field, tensor);
}

absl::Status RankFile::Write(const Field& field, const LogicalTensor&,
                             const Extent& extent, const void* values) {
  const auto at = open_.find(extent.slab);
  DELINK_CHECK(at != open_.end()) << "a slab that has not begun";
  const OwnedPart::Values& there = at->second.part.params[extent.param];
  const Rect& rect = extent.rect;
  // Rows that lie one behind the other are one.
  const bool together = rect.rows == 1 || rect.columns == extent.pitch;
  const int64_t rows = together ? 1 : rect.rows;
  const int64_t count = rect.elements() / rows;
  const auto* from = static_cast<const char*>(values);
  for (int64_t row = 0; row < rows; ++row) {
    DELINK_RETURN_IF_ERROR(at->second.dataset.Write(
        ElementOf(type_),
        there.at + extent.offset - there.first + row * extent.pitch, count,
        from));
    from += count * SizeOf(type_);
  }
  return absl::OkStatus();
}

}  // namespace delink::checkpoint
