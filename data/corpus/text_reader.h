// Text files, plain or gzipped, read piece by piece in bounded memory and
// checked to be UTF-8.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace delink {

struct TextFile {
  std::string path;
  int64_t bytes = 0;  // of text; of a gzipped file as its trailer has it
  bool gzipped = false;
};

// The regular files that `inputs` name, folders standing for all files below
// them in the order of their paths.
absl::StatusOr<std::vector<TextFile>> ListTextFiles(
    const std::vector<std::string>& inputs);

// One file, front to back. Not thread-safe. Move-only.
class TextReader {
 public:
  static absl::StatusOr<TextReader> Open(const std::string& path);

  TextReader(TextReader&&) noexcept;
  TextReader& operator=(TextReader&&) noexcept;
  ~TextReader();

  // The next piece, at most 64 KiB, ended where a line or else a word ends if
  // it can be; empty at the end of the file. Where pieces end depends on the
  // text alone. The error names file and byte.
  absl::StatusOr<std::string> Next();

 private:
  struct Stream;

  explicit TextReader(std::unique_ptr<Stream> stream);
  absl::Status Fill();

  std::unique_ptr<Stream> stream_;
  std::string buffer_;    // UTF-8 but for a character cut short
  int64_t consumed_ = 0;  // bytes of text before the buffer
  bool ended_ = false;
};

// The bytes of text in a file, by reading it.
absl::StatusOr<int64_t> CountTextBytes(const std::string& path);

}  // namespace delink
