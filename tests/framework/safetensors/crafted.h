// Safetensors files byte by byte, good ones and others.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace delink::testing {

// A header of any text behind its length, and data.
inline std::string SafetensorsBytes(std::string_view header,
                                    std::string_view data) {
  std::string bytes;
  for (size_t i = 0; i < 8; ++i) {
    bytes += static_cast<char>(header.size() >> 8 * i & 0xFF);
  }
  bytes += header;
  bytes += data;
  return bytes;
}

}  // namespace delink::testing
