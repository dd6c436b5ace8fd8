// gzip and zstd, one step at a time: bytes in, bytes out, no files.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace delink {

class Decompressor {
 public:
  struct Step {
    size_t consumed = 0;
    size_t produced = 0;
    bool whole = false;  // the data may end here
    std::string error;   // empty unless the data are damaged
  };

  virtual ~Decompressor() = default;

  // "gzip" or "zstd", which is also the program that tests such files.
  virtual const char* kind() const = 0;

  // Continues after the last step. Consecutive members or frames are one text.
  // A step that consumes and produces nothing needs more input or more room.
  virtual Step Run(std::string_view in, std::span<char> out) = 0;
};

// By `head`, the first bytes of a file; null if they are of neither format.
std::unique_ptr<Decompressor> MakeDecompressor(std::string_view head);

}  // namespace delink
