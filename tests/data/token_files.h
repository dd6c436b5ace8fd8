// Token files as other programs write them, byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace delink::testing {

// Appends a number, little-endian.
template <typename T>
void Put(T value, std::string& out) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out += static_cast<char>(static_cast<uint64_t>(value) >> 8 * i);
  }
}

template <typename T>
std::string Numbers(const std::vector<int64_t>& values) {
  std::string bytes;
  for (const int64_t value : values) Put(static_cast<T>(value), bytes);
  return bytes;
}

using Documents = std::vector<std::vector<int64_t>>;

// A Megatron index of sequences of so many tokens that begin at these bytes,
// and the sequences at which documents begin.
struct MegatronParts {
  std::vector<int64_t> lengths, begins, bounds;
};

inline std::string MegatronIndex(const MegatronParts& parts, int type = 8) {
  std::string out("MMIDIDX\0\0", 9);
  Put<uint64_t>(1, out);
  Put<uint8_t>(static_cast<uint8_t>(type), out);
  Put<uint64_t>(parts.lengths.size(), out);
  Put<uint64_t>(parts.bounds.size(), out);
  return out + Numbers<int32_t>(parts.lengths) +
         Numbers<int64_t>(parts.begins) + Numbers<int64_t>(parts.bounds);
}

// Over documents of one sequence each.
inline std::string MegatronIndex(const Documents& documents, int type,
                                 int64_t width) {
  MegatronParts parts;
  int64_t at = 0;
  for (const auto& document : documents) {
    parts.bounds.push_back(static_cast<int64_t>(parts.lengths.size()));
    parts.lengths.push_back(static_cast<int64_t>(document.size()));
    parts.begins.push_back(at);
    at += parts.lengths.back() * width;
  }
  parts.bounds.push_back(static_cast<int64_t>(documents.size()));
  return MegatronIndex(parts, type);
}

inline std::string LlmCHeader(int32_t magic, int32_t version, int64_t count) {
  std::string out;
  Put<int32_t>(magic, out);
  Put<int32_t>(version, out);
  Put<int32_t>(static_cast<int32_t>(count), out);
  out.resize(1024, '\0');
  return out;
}

// Version 1, as numpy.save writes it.
inline std::string NumpyHeader(std::string_view descr, std::string_view shape) {
  std::string header =
      "{'descr': '" + std::string(descr) +
      "', 'fortran_order': False, 'shape': " + std::string(shape) + ", }";
  header.resize((header.size() + 10) / 64 * 64 + 53, ' ');
  header += '\n';
  std::string out("\x93NUMPY\x01\0", 8);
  Put<uint16_t>(static_cast<uint16_t>(header.size()), out);
  return out + header;
}

inline std::vector<int64_t> Joined(const Documents& documents) {
  std::vector<int64_t> all;
  for (const auto& document : documents) {
    all.insert(all.end(), document.begin(), document.end());
  }
  return all;
}

}  // namespace delink::testing
