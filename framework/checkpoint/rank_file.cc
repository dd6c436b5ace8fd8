#include "framework/checkpoint/rank_file.h"

#include <fcntl.h>

#include <cerrno>
#include <string_view>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/frame.h"
#include "framework/checkpoint/layout.h"
#include "framework/hdf5/hdf5.h"

namespace delink::checkpoint {

absl::StatusOr<RankFile::Datasets> RankFile::MakeRoom(const std::string& path,
                                                      const FilePlan& plan,
                                                      int rank, DType type) {
  Datasets datasets;
  DELINK_ASSIGN_OR_RETURN(hdf5::File file, hdf5::File::Create(path));
  for (const Field& field : plan.fields()) {
    for (size_t s = 0; s < plan.layout().slabs().size(); ++s) {
      for (auto& [place, part] : plan.PartsOf(field, static_cast<int>(s))) {
        const auto& [writer, local] = place;
        if (writer != rank) continue;
        DELINK_ASSIGN_OR_RETURN(
            const hdf5::Dataset dataset,
            file.CreateDataset(plan.DatasetOf(field, local), ElementOf(type),
                               {part.size}, hdf5::Room::kAtOnce));
        datasets[{field.state, local}] = {.part = std::move(part),
                                          .place = dataset.place()};
      }
    }
  }
  DELINK_RETURN_IF_ERROR(file.Close());
  return datasets;
}

absl::StatusOr<RankFile> RankFile::Create(const std::string& path,
                                          const FilePlan& plan, int rank,
                                          DType type) {
  DELINK_ASSIGN_OR_RETURN(Datasets datasets, MakeRoom(path, plan, rank, type));
  ValueRanges values;
  for (const auto& [name, dataset] : datasets) {
    const int64_t size = dataset.part.size * SizeOf(type);
    if (size > 0) values[dataset.place] = dataset.place + size;
  }
  DELINK_ASSIGN_OR_RETURN(std::string frame, FrameOf(path, values));
  DELINK_ASSIGN_OR_RETURN(const int64_t bytes, FileSize(path));
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return FileError(errno, path, "open for writing");
  RankFile file(plan, type, std::move(datasets), std::move(frame),
                std::make_unique<DigestedFile>(path, descriptor, bytes));
  DELINK_RETURN_IF_ERROR(file.KeepOthers(bytes));
  return file;
}

// Digests the bytes that HDF5 has written, and the zeros between values.
absl::Status RankFile::KeepOthers(int64_t bytes) {
  std::map<int64_t, int64_t> written;  // begins and ends
  for (const auto& [name, dataset] : datasets_) {
    for (const OwnedPart::Values& values : dataset.part.params) {
      if (values.count == 0) continue;
      const int64_t begin = dataset.place + values.at * SizeOf(type_);
      written[begin] = begin + values.count * SizeOf(type_);
    }
  }
  int64_t end = 0;
  for (const auto& [begin, next] : written) {
    DELINK_RETURN_IF_ERROR(file_->Keep(end, begin).status());
    end = next;
  }
  return file_->Keep(end, bytes).status();
}

absl::StatusOr<std::string> RankFile::Close() {
  DELINK_RETURN_IF_ERROR(file_->Close());
  return file_->Digest();
}

Descriptor RankFile::Wants(const Field& field,
                           const LogicalTensor& tensor) const {
  return plan_->Writers(field, tensor);
}

absl::Status RankFile::Write(const Field& field, const LogicalTensor&,
                             const Extent& extent, const void* values) {
  const auto at = datasets_.find({field.state, extent.slab});
  DELINK_CHECK(at != datasets_.end()) << "a slab of another rank";
  const Dataset& dataset = at->second;
  const OwnedPart::Values& there = At(dataset.part.params, extent.param);
  const Rect& rect = extent.rect;
  // Contiguous rows are one.
  const bool together = rect.rows == 1 || rect.columns == extent.pitch;
  const int64_t rows = together ? 1 : rect.rows;
  const int64_t size = SizeOf(type_);
  const int64_t bytes = rect.elements() / rows * size;
  const auto* from = static_cast<const char*>(values);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t value =
        there.at + extent.offset - there.first + row * extent.pitch;
    DELINK_RETURN_IF_ERROR(
        file_
            ->Write(dataset.place + value * size,
                    std::string_view(from, static_cast<size_t>(bytes)))
            .status());
    from += bytes;
  }
  return absl::OkStatus();
}

}  // namespace delink::checkpoint
