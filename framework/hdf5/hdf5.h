// The only door to HDF5: files, groups, attributes, datasets, soft links and
// virtual datasets, as our formats need them.
//
// Paths inside a file are absolute or relative to its root and separated by
// slashes. Datasets are contiguous, uncompressed and little-endian, row-major,
// of rank >= 1; the element type asked for must be the one stored. A *flat*
// range [begin, end) counts elements in row-major order.
//
// The library is not thread-safe: every call here holds one process-wide mutex,
// so objects may be used and destroyed on any thread. Objects are move-only and
// close what they hold. If a process first uses the library through this code,
// the library does no cleanup at exit. Its messages become part of the Status;
// nothing is printed. Verify the SHA-256 of a file that others wrote before
// opening it: HDF5 may crash on a damaged file. It also reads missing data
// (elements never written, sources of a virtual dataset that it cannot open) as
// zeros, without an error. So OpenDataset checks that the files hold all of it.
//
// A well-formed file may still be built to read other files, or to be walked
// for ever. So only a regular file is opened, no link. Its groups must be a
// tree without links out of it, and its datasets be in it, or virtual over
// files that the caller has named.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/status_macros.h"

namespace delink::hdf5 {

enum class ElementType { kF32, kF64, kI32, kI64, kU8, kU16, kU32 };

int64_t ByteSize(ElementType type);
const char* Name(ElementType type);

template <typename T>
constexpr ElementType kElementTypeOf = [] {
  static_assert(!sizeof(T*), "no HDF5 element type for this type");
  return ElementType::kU8;
}();
template <>
inline constexpr ElementType kElementTypeOf<float> = ElementType::kF32;
template <>
inline constexpr ElementType kElementTypeOf<double> = ElementType::kF64;
template <>
inline constexpr ElementType kElementTypeOf<int32_t> = ElementType::kI32;
template <>
inline constexpr ElementType kElementTypeOf<int64_t> = ElementType::kI64;
template <>
inline constexpr ElementType kElementTypeOf<uint8_t> = ElementType::kU8;
template <>
inline constexpr ElementType kElementTypeOf<uint16_t> = ElementType::kU16;
template <>
inline constexpr ElementType kElementTypeOf<uint32_t> = ElementType::kU32;

using Shape = std::vector<int64_t>;

// The product of the dimensions.
int64_t ElementCount(const Shape& shape);

// Where a flat range of a virtual dataset is stored.
struct Piece {
  int64_t begin = 0;  // flat range [begin, end) of the virtual dataset
  int64_t end = 0;
  std::string file;     // relative to the folder of the virtual dataset's file
  std::string dataset;  // one-dimensional, of the same element type
  int64_t offset = 0;   // in `dataset`, of element `begin`
};

// When a dataset's space in the file is allocated.
enum class Room { kWhenWritten, kAtOnce };

struct DatasetInfo {
  ElementType type = ElementType::kU8;
  Shape shape;
  bool is_virtual = false;
};

struct Rectangle;  // rectangles.h

// The types of attributes that Delink writes.
using AttributeValue = std::variant<int64_t, double, std::string>;

enum class ChildKind { kGroup, kDataset, kSoftLink, kOther };

struct Child {
  std::string name;
  ChildKind kind = ChildKind::kOther;
  std::string target;  // of a soft link
};

// An open dataset. Keeps its file open.
class Dataset {
 public:
  Dataset(Dataset&& other) noexcept;
  Dataset& operator=(Dataset&& other) noexcept;
  ~Dataset();

  const DatasetInfo& info() const { return info_; }
  int64_t size() const { return size_; }  // elements
  // The byte of the file where its contiguous elements begin; -1: no space is
  // allocated yet, or it is virtual or empty.
  int64_t place() const;
  // Where all elements of a virtual dataset are, in their order.
  absl::StatusOr<std::vector<Piece>> Pieces() const;

  // Reads or writes the flat range [begin, begin + count). `type` is that of
  // `data` and must be the dataset's. A full disk is ResourceExhausted.
  absl::Status Read(ElementType type, int64_t begin, int64_t count,
                    void* data) const;
  absl::Status Write(ElementType type, int64_t begin, int64_t count,
                     const void* data);

  // Reads `rows` flat ranges of `count` elements, packed: [begin, begin +
  // count), which lies in one row (of the last dimension), and the ranges below
  // it in the rows that follow.
  absl::Status ReadRows(ElementType type, int64_t begin, int64_t rows,
                        int64_t count, void* data) const;

  template <typename T>
  absl::Status Read(int64_t begin, int64_t count, T* data) const {
    return Read(kElementTypeOf<T>, begin, count, data);
  }
  template <typename T>
  absl::Status Write(int64_t begin, int64_t count, const T* data) {
    return Write(kElementTypeOf<T>, begin, count, data);
  }

 private:
  friend class File;
  Dataset() = default;
  absl::Status CheckRead(ElementType type, int64_t begin, int64_t count) const;
  absl::Status ReadRectangles(const std::vector<Rectangle>& rectangles,
                              void* data) const;

  std::string where_;  // "file: /path", for messages
  int64_t id_ = -1;
  DatasetInfo info_;
  int64_t size_ = 0;
};

// An open file.
class File {
 public:
  // Creates a file, or replaces the one at `path`.
  static absl::StatusOr<File> Create(const std::string& path);
  // `parts`: virtual datasets may be over PARTS-00000.h5, PARTS-00001.h5 and so
  // on, regular files in the same folder. Over others, or without parts, they
  // cannot be opened.
  static absl::StatusOr<File> OpenReadOnly(const std::string& path,
                                           const std::string& parts = "");
  static absl::StatusOr<File> OpenReadWrite(const std::string& path,
                                            const std::string& parts = "");

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }

  // Flushes and closes the file, and syncs it if it was written. Only this
  // tells whether all data reached the disk. Destroy Datasets of the file
  // before.
  absl::Status Close();

  // Groups and links. Missing parents are created.
  absl::Status CreateGroup(const std::string& path);  // existing: no error
  absl::Status CreateSoftLink(const std::string& target,
                              const std::string& path);
  absl::Status Remove(const std::string& path);  // the link, not its target
  // Whether `path` leads to an object, soft links followed.
  bool Exists(const std::string& path) const;
  // The target of the soft link at `path`; none if `path` is no soft link.
  absl::StatusOr<std::optional<std::string>> SoftLinkTarget(
      const std::string& path) const;
  // The children of a group by name, sorted; soft links are not followed.
  absl::StatusOr<std::vector<Child>> List(const std::string& group) const;

  // Attributes of the object at `path` ("/" for the file's own). Setting
  // replaces. Text is UTF-8 without NUL.
  absl::Status SetInt(const std::string& path, const std::string& name,
                      int64_t value);
  absl::Status SetDouble(const std::string& path, const std::string& name,
                         double value);
  absl::Status SetText(const std::string& path, const std::string& name,
                       std::string_view value);
  absl::StatusOr<int64_t> GetInt(const std::string& path,
                                 const std::string& name) const;
  absl::StatusOr<double> GetDouble(const std::string& path,
                                   const std::string& name) const;
  absl::StatusOr<std::string> GetText(const std::string& path,
                                      const std::string& name) const;
  // All attributes of an object, by name. InvalidArgument: one has another
  // type.
  absl::StatusOr<std::map<std::string, AttributeValue>> Attributes(
      const std::string& path) const;

  // Datasets. Elements that are never written are undefined.
  absl::StatusOr<Dataset> CreateDataset(const std::string& path,
                                        ElementType type, const Shape& shape,
                                        Room room = Room::kWhenWritten);
  // The pieces, in any order, cover [0, ElementCount(shape)) exactly; a piece
  // that is not a rectangle of the shape is split into rectangles here.
  absl::Status CreateVirtual(const std::string& path, ElementType type,
                             const Shape& shape, std::vector<Piece> pieces);
  absl::StatusOr<Dataset> OpenDataset(const std::string& path) const;

  // Whole small datasets in one call.
  template <typename T>
  absl::Status WriteAll(const std::string& path, const Shape& shape,
                        const T* data) {
    DELINK_ASSIGN_OR_RETURN(Dataset dataset,
                            CreateDataset(path, kElementTypeOf<T>, shape));
    return dataset.Write(0, dataset.size(), data);
  }
  template <typename T>
  absl::StatusOr<std::vector<T>> ReadAll(const std::string& path) const {
    DELINK_ASSIGN_OR_RETURN(Dataset dataset, OpenDataset(path));
    std::vector<T> data(static_cast<size_t>(dataset.size()));
    DELINK_RETURN_IF_ERROR(dataset.Read(0, dataset.size(), data.data()));
    return data;
  }

 private:
  File() = default;
  static absl::StatusOr<File> Open(const std::string& path, bool writable,
                                   const std::string& parts);

  std::string path_;
  std::string parts_;
  int64_t id_ = -1;
  bool writable_ = false;
};

}  // namespace delink::hdf5
