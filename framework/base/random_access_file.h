// A file of which any bytes are read, in any order, by any thread.
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
  // `path` may be a link to a file, but nothing that is no file: a pipe to
  // which nobody writes is an error too, and is not waited for.
  static absl::StatusOr<RandomAccessFile> Open(const std::string& path);

  RandomAccessFile(RandomAccessFile&& other) noexcept;
  RandomAccessFile& operator=(RandomAccessFile&& other) noexcept;
  ~RandomAccessFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // when it was opened

  // From now on what is read does not stay in the system's cache, where the
  // file system can read past it: for large files that are read once. Before
  // others read.
  void ReadPastCache();

  // Bytes [begin, begin + size): DataLoss where the file has become shorter.
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

// DataLoss: `path` has so many bytes in place of those wanted.
absl::Status FileCutShort(const std::string& path, int64_t bytes,
                          int64_t wanted);

}  // namespace delink
