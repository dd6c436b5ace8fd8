#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/hdf5/hdf5.h"
#include "framework/hdf5/library.h"
#include "framework/hdf5/rectangles.h"

namespace delink::hdf5 {
namespace {

absl::StatusOr<ElementType> ElementTypeOf(hid_t dataset,
                                          const std::string& where) {
  const Handle type(H5Dget_type(dataset), H5Tclose);
  for (const ElementType candidate :
       {ElementType::kF32, ElementType::kF64, ElementType::kI32,
        ElementType::kI64, ElementType::kU8, ElementType::kU16,
        ElementType::kU32}) {
    if (H5Tequal(type.get(), StoredType(candidate)) > 0) return candidate;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(where,
                   ": has an element type that Delink does not write; "
                   "another program wrote it"));
}

// Checks that the file holds all elements that the dataset claims: any number
// of missing ones would be read as zeros.
absl::Status CheckRoom(hid_t dataset, hid_t list, const DatasetInfo& info,
                       const std::string& where) {
  int64_t bytes = ByteSize(info.type);
  for (const int64_t extent : info.shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) {
      return absl::DataLossError(absl::StrCat(
          where, ": claims more elements than any file has; restore the file"));
    }
  }
  if (info.is_virtual) return CheckSources(dataset, list, where);
  const auto there = static_cast<int64_t>(H5Dget_storage_size(dataset));
  if (there >= bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(where, ": claims ", bytes,
                                          " bytes, of which the file holds ",
                                          there, "; restore the file"));
}

absl::StatusOr<DatasetInfo> InfoOf(hid_t dataset, const std::string& where,
                                   const std::string& parts) {
  DatasetInfo info;
  // The storage is checked first, because the library opens files that a
  // dataset names.
  const Handle list(H5Dget_create_plist(dataset), H5Pclose);
  info.is_virtual = H5Pget_layout(list.get()) == H5D_VIRTUAL;
  DELINK_RETURN_IF_ERROR(info.is_virtual
                             ? CheckSourceNames(list.get(), where, parts)
                             : CheckContiguous(list.get(), where));
  DELINK_ASSIGN_OR_RETURN(info.type, ElementTypeOf(dataset, where));
  const Handle space(H5Dget_space(dataset), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(where,
                     ": is not an array, unlike the datasets of Delink; "
                     "another program wrote it"));
  }
  std::vector<hsize_t> sizes(static_cast<size_t>(rank));
  H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr);
  info.shape.assign(sizes.begin(), sizes.end());
  DELINK_RETURN_IF_ERROR(CheckRoom(dataset, list.get(), info, where));
  return info;
}

}  // namespace

absl::Status CheckContiguous(hid_t list, const std::string& where) {
  if (H5Pget_layout(list) != H5D_CONTIGUOUS) {
    return absl::InvalidArgumentError(absl::StrCat(
        where,
        ": is not contiguous, unlike the datasets of Delink; another program "
        "wrote it"));
  }
  if (H5Pget_external_count(list) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(where,
                   ": has its data in another file that is no HDF5 file; "
                   "another program wrote it"));
}

absl::StatusOr<Dataset> File::CreateDataset(const std::string& path,
                                            ElementType type,
                                            const Shape& shape, Room room) {
  Dataset dataset;
  dataset.where_ = Where(path_, path);
  dataset.info_ = {.type = type, .shape = shape};
  dataset.size_ = ElementCount(shape);
  const Session session;
  const Handle space = SimpleSpace(shape);
  const Handle parents = ParentsList();
  const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  // All of it is going to be written; filling it first would double the work.
  H5Pset_fill_time(list.get(), H5D_FILL_TIME_NEVER);
  if (room == Room::kAtOnce) {
    H5Pset_alloc_time(list.get(), H5D_ALLOC_TIME_EARLY);
  }
  // So that the same contents give the same bytes, whenever they are written.
  H5Pset_obj_track_times(list.get(), false);
  dataset.id_ = H5Dcreate2(id_, path.c_str(), StoredType(type), space.get(),
                           parents.get(), list.get(), H5P_DEFAULT);
  if (dataset.id_ < 0) {
    return LibraryError(dataset.where_, "create the dataset");
  }
  return dataset;
}

absl::StatusOr<Dataset> File::OpenDataset(const std::string& path) const {
  Dataset dataset;
  dataset.where_ = Where(path_, path);
  absl::StatusOr<DatasetInfo> info;
  {
    const Session session;
    dataset.id_ = H5Dopen2(id_, path.c_str(), H5P_DEFAULT);
    if (dataset.id_ < 0) {
      return LibraryError(dataset.where_, "open the dataset");
    }
    info = InfoOf(dataset.id_, dataset.where_, parts_);
  }
  if (!info.ok()) return info.status();
  dataset.info_ = *std::move(info);
  dataset.size_ = ElementCount(dataset.info_.shape);
  return dataset;
}

Dataset::Dataset(Dataset&& other) noexcept
    : where_(std::move(other.where_)),
      id_(std::exchange(other.id_, -1)),
      info_(std::move(other.info_)),
      size_(other.size_) {}

Dataset& Dataset::operator=(Dataset&& other) noexcept {
  std::swap(where_, other.where_);
  std::swap(id_, other.id_);
  std::swap(info_, other.info_);
  std::swap(size_, other.size_);
  return *this;
}

Dataset::~Dataset() {
  if (id_ < 0) return;
  const Session session;
  H5Dclose(id_);
}

int64_t Dataset::place() const {
  const Session session;
  const haddr_t place = H5Dget_offset(id_);
  return place == HADDR_UNDEF ? -1 : static_cast<int64_t>(place);
}

absl::Status Dataset::CheckRead(ElementType type, int64_t begin,
                                int64_t count) const {
  if (type != info_.type) {
    return absl::InvalidArgumentError(
        absl::StrCat(where_, ": holds ", Name(info_.type), ", not ", Name(type),
                     "; another program or version wrote it"));
  }
  if (begin < 0 || count < 0 || begin > size_ - count) {
    return absl::OutOfRangeError(
        absl::StrCat(where_, ": elements [", begin, ", ", begin + count,
                     ") were asked for, but it has ", size_,
                     "; the file is shorter than the file that refers to it "
                     "says: restore it"));
  }
  return absl::OkStatus();
}

absl::Status Dataset::ReadRectangles(const std::vector<Rectangle>& rectangles,
                                     void* data) const {
  const Session session;
  const Handle space(H5Dget_space(id_), H5Sclose);
  const hid_t type = MemoryType(info_.type);
  char* to = static_cast<char*>(data);
  for (const Rectangle& r : rectangles) {
    const Handle memory = SimpleSpace({r.elements});
    if (!Select(space.get(), r) ||
        H5Dread(id_, type, memory.get(), space.get(), H5P_DEFAULT, to) < 0) {
      return LibraryError(where_, "read");
    }
    to += r.elements * ByteSize(info_.type);
  }
  return absl::OkStatus();
}

absl::Status Dataset::Read(ElementType type, int64_t begin, int64_t count,
                           void* data) const {
  DELINK_RETURN_IF_ERROR(CheckRead(type, begin, count));
  return ReadRectangles(FlatRectangles(info_.shape, begin, begin + count),
                        data);
}

absl::Status Dataset::ReadRows(ElementType type, int64_t begin, int64_t rows,
                               int64_t count, void* data) const {
  if (rows == 0 || count == 0) return CheckRead(type, begin, 0);
  const int64_t width = info_.shape.back();
  DELINK_RETURN_IF_ERROR(CheckRead(type, begin, (rows - 1) * width + count));
  return ReadRectangles(RowRectangles(info_.shape, begin, rows, count), data);
}

absl::Status Dataset::Write(ElementType type, int64_t begin, int64_t count,
                            const void* data) {
  DELINK_CHECK(type == info_.type)
      << where_ << ": holds " << Name(info_.type) << ", given " << Name(type);
  DELINK_CHECK(begin >= 0 && count >= 0 && begin <= size_ - count)
      << where_ << ": " << begin << " + " << count << " of " << size_;
  const Session session;
  const Handle space(H5Dget_space(id_), H5Sclose);
  const char* from = static_cast<const char*>(data);
  for (const Rectangle& r : FlatRectangles(info_.shape, begin, begin + count)) {
    const Handle memory = SimpleSpace({r.elements});
    if (!Select(space.get(), r) ||
        H5Dwrite(id_, MemoryType(type), memory.get(), space.get(), H5P_DEFAULT,
                 from) < 0) {
      return LibraryError(where_, "write");
    }
    from += r.elements * ByteSize(type);
  }
  return absl::OkStatus();
}

}  // namespace delink::hdf5
