// A file that any thread reads at any position.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace delink {

// Thread-safe. Move-only.
class RandomAccessFile {
 public:
  // `path` may be a file or a link to one. Anything else is an error; Open does
  // not wait for a pipe to which nobody writes.
  static absl::StatusOr<RandomAccessFile> Open(const std::string& path);

  RandomAccessFile(RandomAccessFile&& other) noexcept;
  RandomAccessFile& operator=(RandomAccessFile&& other) noexcept;
  ~RandomAccessFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // when it was opened

  // Makes later reads bypass the system's cache if the file system supports it:
  // for large files that are read once. Call it before other threads read.
  void ReadPastCache();

  // Bytes [begin, begin + size); DataLoss if the file has become shorter.
  absl::Status Read(int64_t begin, int64_t size, void* bytes) const;

 private:
  RandomAccessFile(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  absl::Status ReadBlocks(int64_t begin, int64_t size, char* to) const;

  int descriptor_ = -1;
  bool past_cache_ = false;
  int64_t size_ = 0;
};

// DataLoss: `path` has `bytes` bytes instead of `wanted`.
absl::Status FileCutShort(const std::string& path, int64_t bytes,
                          int64_t wanted);

}  // namespace delink
