// How a count is cut over ranks that need not have equal pieces.
#pragma once

#include <cstdint>

#include "framework/module/slab.h"

namespace delink {

// Piece `i` of `n` of [0, count), as even as possible: none has more than
// count / n, rounded up.
inline Range EvenPiece(int64_t count, int i, int n) {
  return {count * i / n, count * (i + 1) / n};
}

}  // namespace delink
