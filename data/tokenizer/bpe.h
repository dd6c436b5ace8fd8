// Byte-pair encoding (Sennrich, Haddow and Birch 2016) of one word. Each byte
// starts as a token. As long as any neighbours have a merge, the pair with the
// lowest rank is merged, the leftmost first.
//
// Immutable and thread-safe; each thread needs its own Scratch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace delink {

class Bpe {
 public:
  struct Merge {
    int32_t left = 0, right = 0, result = 0;
  };
  class Scratch {
   private:
    friend class Bpe;
    // A token of the word, linked to its neighbours by index; -1: none.
    struct Symbol {
      int32_t id = 0;  // -1: merged into the one before
      int32_t before = 0, after = 0;
    };
    struct Candidate {
      int32_t rank = 0;
      int32_t at = 0;  // the left one's index
      int32_t result = 0;
    };
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
  };

  // `merges` are in order of rank. If a pair is there twice, the later counts.
  Bpe(const std::array<int32_t, 256>& byte_ids,
      const std::vector<Merge>& merges);

  // Appends the ids of `word`.
  void Encode(std::string_view word, Scratch& scratch,
              std::vector<int32_t>* ids) const;

 private:
  struct Result {
    int32_t rank = 0;
    int32_t id = 0;
  };

  const Result* Find(int32_t left, int32_t right) const;
  void AddCandidate(int32_t at, Scratch& scratch) const;

  std::array<int32_t, 256> byte_ids_;
  absl::flat_hash_map<uint64_t, Result> merges_;  // by both ids
};

}  // namespace delink
