// Reads a file front to back in bounded memory and decompresses gzip and zstd,
// which it recognises by the first bytes of the file, whatever its name.
//
// Not thread-safe. Compressed data that are damaged or cut short give DataLoss,
// which names the byte of the file and how much text precedes it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/corpus/decompressor.h"
#include "framework/base/file.h"

namespace delink {

class ByteSource {
 public:
  // `name` is the file's name in messages. If it ends in .gz or .zst, the file
  // must hold such data.
  static absl::StatusOr<ByteSource> Open(const std::string& path,
                                         const std::string& name);

  // Fills `buffer` with up to `size` bytes of text and returns how many; less
  // than `size` only at the end.
  absl::StatusOr<int64_t> Read(char* buffer, int64_t size);

  const std::string& name() const { return name_; }

  // The bytes of the file, as it is stored, that have been read.
  int64_t stored_bytes() const { return stored_; }

 private:
  ByteSource(std::string name, InputFile file)
      : name_(std::move(name)), file_(std::move(file)) {}

  absl::Status Refill();
  absl::StatusOr<int64_t> Decompress(char* buffer, int64_t size);
  absl::Status DamageError(const Decompressor::Step& step) const;

  std::string name_;
  InputFile file_;
  std::unique_ptr<Decompressor> decompressor_;  // null: not compressed
  std::vector<char> stored_buffer_;
  std::string_view pending_;  // of stored_buffer_
  int64_t stored_ = 0;
  int64_t text_ = 0;  // bytes handed out
  bool at_end_ = false;
};

}  // namespace delink
