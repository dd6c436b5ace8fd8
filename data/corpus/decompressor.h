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
    bool whole = false;  // what was consumed is complete: it may end here
    std::string error;   // empty unless the data are damaged
  };

  virtual ~Decompressor() = default;

  // "gzip" or "zstd", which is also the program that tests such files.
  virtual const char* kind() const = 0;

  // Goes on from the last step. Several members or frames in a row are one
  // text. Consumes and produces nothing only where it lacks input, or room.
  virtual Step Run(std::string_view in, std::span<char> out) = 0;
};

// What `head`, the first bytes of a file, announce; null for neither.
std::unique_ptr<Decompressor> MakeDecompressor(std::string_view head);

}  // namespace delink
