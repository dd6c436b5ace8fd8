// One safetensors file, open for reading.
//
// The format: 8 bytes, the length of the header (little-endian, at most 100
// MB); the header, a JSON object {NAME: {"dtype", "shape", "data_offsets":
// [BEGIN, END]}, "__metadata__": {TEXT: TEXT}}; the data. Offsets count from
// the data's begin. Open checks everything, so that no byte outside the data
// can be read later: names are unique, types are known, shapes match the bytes
// between the offsets, and the tensors fill the data without a hole or an
// overlap.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/random_access_file.h"
#include "framework/safetensors/type.h"

namespace delink::safetensors {

inline constexpr int64_t kLongestHeader = 100'000'000;  // bytes

struct Entry {
  std::string name;
  Type type = Type::kF32;
  std::vector<int64_t> shape;  // empty: one value
  int64_t begin = 0, end = 0;  // bytes of the data

  int64_t count() const { return (end - begin) / SizeOf(type); }
};

// Thread-safe. Move-only.
class File {
 public:
  // InvalidArgument: it is no safetensors file. DataLoss: it is shorter or
  // longer than its header says. Errors have the path and the reason. `path`
  // may be a link to a file, as in Hugging Face's cache.
  static absl::StatusOr<File> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // By place in the data.
  const std::vector<Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const {
    return metadata_;
  }

  // As RandomAccessFile does.
  void ReadPastCache() { file_.ReadPastCache(); }

  // Values [first, first + count) of an entry of this file, which must be
  // inside it (a check). ReadBytes reads the bytes as they are, of any type.
  // Read converts to float, and refuses types without values (type.h).
  // DataLoss: the file has become shorter.
  absl::Status ReadBytes(const Entry& entry, int64_t first, int64_t count,
                         void* bytes) const;
  absl::Status Read(const Entry& entry, int64_t first, int64_t count,
                    float* values) const;

 private:
  explicit File(RandomAccessFile file) : file_(std::move(file)) {}
  absl::Status ReadHeader();
  // Reads the entries of a header; returns where the data end.
  absl::StatusOr<int64_t> ReadEntries(std::string_view text);

  RandomAccessFile file_;
  int64_t data_ = 0;  // where the data begin
  std::vector<Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace delink::safetensors
