// Positions of tokens in the order of their ids, so that the gradient of each
// row of an embedding is a sum over neighbours in a list.
#pragma once

#include <cstdint>

namespace delink {

class Stream;

namespace cuda {

// A token and its position.
struct alignas(8) Occurrence {
  int32_t token;
  int32_t position;
};

// The most tokens that one call sorts.
inline constexpr int64_t kMaxSorted = int64_t{1} << 19;
// Bytes of memory that it needs for n tokens, at a multiple of 16 bytes.
int64_t TokenSortBytes(int64_t n);

// Ids of a vocabulary. Those in [first, first + V) are sorted as id - first,
// all others as V.
struct TokenIds {
  int64_t first, V;
  bool others;  // whether there are any
};

// Sorts the n occurrences of tokens [n] by token, and those of one token by
// position. The result is in `memory`, which has TokenSortBytes(n) bytes, once
// the stream has run the sort.
const Occurrence* SortTokens(Stream& stream, const int32_t* tokens, int64_t n,
                             const TokenIds& ids, void* memory);

}  // namespace cuda
}  // namespace delink
