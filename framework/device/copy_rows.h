// Copies of matrices between other row lengths, on a device.
#pragma once

#include <cstdint>

#include "framework/device/backend.h"

namespace delink {

// `rows` rows of `bytes`, which lie `to_pitch` and `from_pitch` bytes apart, in
// the order of the stream; to and from do not overlap. One copy where rows lie
// one behind the other on both sides, else one a row.
inline void CopyRows(Device& device, Stream& stream, void* to, int64_t to_pitch,
                     const void* from, int64_t from_pitch, int64_t bytes,
                     int64_t rows) {
  if (to_pitch == bytes && from_pitch == bytes) {
    device.Copy(stream, to, from, bytes * rows);
    return;
  }
  for (int64_t row = 0; row < rows; ++row) {
    device.Copy(stream, static_cast<char*>(to) + row * to_pitch,
                static_cast<const char*>(from) + row * from_pitch, bytes);
  }
}

}  // namespace delink
