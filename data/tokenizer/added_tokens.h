// The tokens of a vocabulary that are found literally in a text, before it is
// split into words.
//
// Thread-safe once it is filled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace delink {

class AddedTokens {
 public:
  struct Found {
    size_t begin = 0, end = 0;
    int32_t id = 0;
  };

  // `content` is not empty.
  void Add(std::string content, int32_t id);

  // The first at or after `from`; if several begin there, the longest.
  std::optional<Found> Find(std::string_view text, size_t from) const;

 private:
  struct Entry {
    std::string content;
    int32_t id = 0;
  };
  // By their first byte, the longest first.
  std::array<std::vector<Entry>, 256> entries_;
  bool any_ = false;
};

}  // namespace delink
