#include "framework/checkpoint/checkpoint_values.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/layout.h"

namespace delink {

using checkpoint::IsState;
using checkpoint::PathOf;

absl::StatusOr<CheckpointValues> CheckpointValues::Open(
    const std::string& path, const Layout& layout,
    std::vector<StateSpec> states, DType type, SavedAs saved_as) {
  DELINK_ASSIGN_OR_RETURN(
      hdf5::File file,
      hdf5::File::OpenReadOnly(JoinPath(path, checkpoint::kIndexName),
                               checkpoint::kWriters));
  return CheckpointValues(path, std::move(file), layout, std::move(states),
                          type, std::move(saved_as));
}

CheckpointValues::CheckpointValues(std::string path, hdf5::File file,
                                   const Layout& layout,
                                   std::vector<StateSpec> states, DType type,
                                   SavedAs saved_as)
    : path_(std::move(path)),
      file_(std::move(file)),
      layout_(&layout),
      states_(std::move(states)),
      type_(type),
      saved_as_(std::move(saved_as)) {}

LogicalTensor CheckpointValues::Saved(const LogicalTensor& tensor) const {
  LogicalTensor saved = tensor;
  saved.name = saved_as_.NameOf(tensor.name);
  DELINK_CHECK(!saved.name.empty()) << tensor.name;
  if (saved_as_.IsRepeated(tensor.name)) {
    saved.shape = Shape(tensor.shape.dims().subspan(1));
  }
  return saved;
}

Shape CheckpointValues::ShapeOf(const Field& field,
                                const LogicalTensor& tensor) const {
  return StateShape(tensor.shape,
                    checkpoint::GridOf(*layout_, states_, field, tensor));
}

absl::Status CheckpointValues::Check(const Field& field,
                                     const LogicalTensor& tensor) {
  const LogicalTensor saved = Saved(tensor);
  const std::string path = PathOf(field, saved);
  if (!file_.Exists(path)) {
    if (!IsState(field)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path_, ": has no ", saved.name,
          "; use the recipe that the checkpoint was trained with"));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        file_.path(), ": has no ", path,
        "; use the optimizer that the checkpoint was trained with, or start "
        "from its weights only (--init)"));
  }
  DELINK_ASSIGN_OR_RETURN(const hdf5::Dataset* const dataset,
                          Open(field, saved));
  const std::vector<int64_t>& stored = dataset->info().shape;
  const Shape shape = ShapeOf(field, saved);
  if (std::ranges::equal(stored, shape.dims())) {
    // Reads nothing yet, but checks that the type is the one to be read.
    return dataset->Read(checkpoint::ElementOf(type_), 0, 0, nullptr);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      file_.path(), ": ", saved.name,
      IsState(field) ? absl::StrCat("'s ", field.state) : "", " is ",
      ShapeText(stored), ", but the model's is ", shape.ToString(),
      "; use the recipe that the checkpoint was trained with"));
}

absl::StatusOr<std::vector<hdf5::Piece>> CheckpointValues::Pieces(
    const LogicalTensor& tensor) {
  DELINK_ASSIGN_OR_RETURN(const hdf5::Dataset* const dataset,
                          Open({}, Saved(tensor)));
  return dataset->Pieces();
}

absl::StatusOr<int64_t> CheckpointValues::Updates(
    const LogicalTensor& tensor) const {
  DELINK_ASSIGN_OR_RETURN(
      const int64_t updates,
      file_.GetInt(checkpoint::StateGroup(saved_as_.NameOf(tensor.name)),
                   "updates"));
  if (updates >= 0 && updates <= checkpoint::kMostSteps) return updates;
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ": ", tensor.name, " has been updated ", updates,
                   " times; another program wrote it"));
}

Descriptor CheckpointValues::On(int ranks, const Field& field,
                                const LogicalTensor& tensor) const {
  const Rect whole = WholeOf(ShapeOf(field, tensor));
  Descriptor extents;
  if (whole.elements() == 0) return extents;
  for (int rank = 0; rank < ranks; ++rank) {
    extents.push_back({.rect = whole, .rank = rank, .pitch = whole.columns});
  }
  return extents;
}

Descriptor CheckpointValues::Has(const Field& field,
                                 const LogicalTensor& tensor) const {
  return On(layout_->ranks(), field, tensor);
}

Descriptor CheckpointValues::Owners(const Field& field,
                                    const LogicalTensor& tensor) const {
  return On(1, field, tensor);
}

absl::StatusOr<const hdf5::Dataset*> CheckpointValues::Open(
    const Field& field, const LogicalTensor& saved) {
  const std::string path = PathOf(field, saved);
  if (!dataset_.has_value() || opened_ != path) {
    dataset_.reset();
    DELINK_ASSIGN_OR_RETURN(hdf5::Dataset dataset, file_.OpenDataset(path));
    dataset_ = std::move(dataset);
    opened_ = path;
  }
  return &*dataset_;
}

absl::Status CheckpointValues::Read(const Field& field,
                                    const LogicalTensor& tensor,
                                    const Extent& extent, void* values) {
  const LogicalTensor saved = Saved(tensor);
  DELINK_ASSIGN_OR_RETURN(const hdf5::Dataset* const dataset,
                          Open(field, saved));
  if (saved_as_.IsRepeated(tensor.name)) {
    return ReadCopies(*dataset, ShapeOf(field, saved).elements(), extent,
                      values);
  }
  const hdf5::ElementType type = checkpoint::ElementOf(type_);
  const Rect& rect = extent.rect;
  if (rect.rows == 1 || rect.columns == extent.pitch) {
    return dataset->Read(type, extent.offset, rect.elements(), values);
  }
  return dataset->ReadRows(type, extent.offset, rect.rows, rect.columns,
                           values);
}

absl::Status CheckpointValues::ReadCopies(const hdf5::Dataset& dataset,
                                          int64_t each, const Extent& extent,
                                          void* values) const {
  const Rect& rect = extent.rect;
  const bool whole = rect.rows == 1 || rect.columns == extent.pitch;
  const int64_t run = whole ? rect.elements() : rect.columns;
  auto* to = static_cast<char*>(values);
  for (int64_t done = 0, count = 0; done < rect.elements(); done += count) {
    const int64_t at = extent.offset + done / run * extent.pitch + done % run;
    count = std::min(run - done % run, each - at % each);
    DELINK_RETURN_IF_ERROR(
        dataset.Read(checkpoint::ElementOf(type_), at % each, count, to));
    to += count * SizeOf(type_);
  }
  return absl::OkStatus();
}

}  // namespace delink
