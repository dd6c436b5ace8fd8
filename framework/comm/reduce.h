// The sum, maximum or minimum of several buffers, always taken in the order of
// the list, so that a reduction over ranks is the same on every rank.
#pragma once

#include <cstdint>
#include <span>

#include "framework/comm/communicator.h"

namespace delink::comm {

// out[i] = sources[0][i] op sources[1][i] op ..., from left to right, for
// `count` elements; at least one source. `out` may be one of the sources, and
// overlaps with none otherwise. kF32, kF64, kI32, kI64; and kBF16, which is
// widened, combined in f32 and rounded once, to the nearest, ties to even.
void Reduce(std::span<const void* const> sources, void* out, int64_t count,
            DType dtype, ReduceOp op);

}  // namespace delink::comm
