// Positions of tokens in the order of their ids, so that the gradient of each
// row of an embedding is a sum over neighbours in a list.
#pragma once

#include <cstdint>

namespace delink {

class Stream;

namespace cuda {

// Where a token stands.
struct alignas(8) Occurrence {
  int32_t token;
  int32_t position;
};

// As many tokens as one call sorts.
inline constexpr int64_t kMaxSorted = int64_t{1} << 19;
// What it needs for n of them: memory at a multiple of 16 bytes.
int64_t TokenSortBytes(int64_t n);

// Ids of a vocabulary, of which [first, first + V) are told apart: each is
// sorted as if it were less by `first`, and all others as V.
struct TokenIds {
  int64_t first, V;
  bool others;  // whether there are any
};

// The n occurrences of tokens [n] by token, those of one token by position: in
// `memory`, of TokenSortBytes(n), when the stream is there.
const Occurrence* SortTokens(Stream& stream, const int32_t* tokens, int64_t n,
                             const TokenIds& ids, void* memory);

}  // namespace cuda
}  // namespace delink
