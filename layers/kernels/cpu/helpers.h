// Helpers of the vectorised kernels that are compiled once, for the baseline
// instruction set (simd/simd.h says why).
#pragma once

#include <cstdint>

#include "layers/kernels/backend.h"
#include "layers/kernels/cpu/threads.h"

namespace delink::cpu {

// Attention's tiles have this many queries and this many keys.
inline constexpr int64_t kQueryTile = 64;
inline constexpr int64_t kKeyTile = 64;

// T is float or BFloat16; tiles of BFloat16 also need memory as f32.
DELINK_SCRATCH_BYTES(DELINK_DECLARE_SCRATCH)

// The number of threads that can share `bytes` if each needs
// `bytes_per_thread`, at most MaxThreads(). Checks that one fits.
int TeamFor(int64_t bytes, int64_t bytes_per_thread);

// The generator of one sample's dropout.
RngKey SampleKey(const DropoutArgs& s, int64_t b);

// The numbers 0 .. n - 1 ordered by tokens[i], then by i. The result is valid
// until the calling thread's next call.
const int32_t* OrderByToken(const int32_t* tokens, int64_t n);

// Memory of the calling thread, until its next call.
float* ThreadFloats(int64_t n);

void CountGroups(const CountPairsArgs& s);

// AssignRows, with gates in f32.
void SortPairs(const AssignRowsArgs& s);
// AssignSlots.
void TakeSlots(const AssignSlotsArgs& s);

// Adds to the sums in row order, for any number of threads.
void SumLosses(const CrossEntropyArgs& s);
void SumLosses(const VocabCrossEntropyArgs& s);

}  // namespace delink::cpu
