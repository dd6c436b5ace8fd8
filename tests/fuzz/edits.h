// Bytes as edits of an HDF5 file: what they say is well-formed HDF5 that none
// of our writers would write. Attributes and datasets change their type, shape
// and contents, links their targets, objects go; data are elsewhere, links lead
// to other files or back, groups go on and on.
//
// Bytes of a file are not flipped here: a file whose bytes have changed is
// refused by its SHA-256 before HDF5 opens it (which the targets check), and
// what libhdf5 1.10 does with such bytes, crashes among it, is not ours to
// mend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace delink::fuzz {

// Takes bytes as small numbers and texts; zeros when there are no more.
class ByteStream {
 public:
  explicit ByteStream(std::string_view bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  uint8_t Byte();
  int64_t Number();            // at the edges of types, or any
  std::string Text();          // short, without NUL
  size_t Below(size_t bound);  // bound > 0

 private:
  std::string_view bytes_;
};

// What is in the file that edits may name.
struct Editable {
  std::vector<std::string> objects;     // "/", datasets, groups
  std::vector<std::string> attributes;  // of any of them
  std::vector<std::string> files;       // for virtual datasets to refer to
};

// Applies up to eight edits to the file at `path`.
void Edit(const std::string& path, const Editable& what, ByteStream& bytes);

// Seeds for targets whose input is edits.
std::vector<std::string> EditSeeds();

}  // namespace delink::fuzz
