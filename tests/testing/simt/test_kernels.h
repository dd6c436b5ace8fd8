// Kernels for the tests of the emulated device: right ones, and one for each
// mistake.
#pragma once

#include <cstdint>

namespace delink {
class Stream;
}

namespace delink::simt_test {

enum class Flaw {
  kNone,
  kPastTheEnd,       // one thread too many writes
  kNoBarrier,        // reads what other warps wrote in shared memory
  kNoWarpBarrier,    // reads what other lanes wrote
  kReadByAll,        // all read, then one writes
  kHalfBarrier,      // half of the block comes to a barrier
  kOtherBarrier,     // and the other half to another
  kLostLane,         // a lane does not come to a shuffle or product
  kTwoWriters,       // all blocks write one number
  kMisaligned,       // a pack at an odd float
  kUninitialised,    // shared memory that nobody wrote
  kArrayIndex,       // past the end of a static array
  kSharedPastTheEnd  // of dynamic shared memory
};

// to[i] = factor * from[i]; also writes to[n] where it is kPastTheEnd.
void Scale(Stream& stream, float* to, const float* from, float factor,
           int64_t n, Flaw flaw = Flaw::kNone);
// Of bf16 (as bits), every thread one number, written beside its neighbour's.
void ScaleHalf(Stream& stream, uint16_t* to, const uint16_t* from, float factor,
               int64_t n);
// to[b] = sum of rows of 256 numbers, through shared memory. 64 threads a
// block.
void SumRows(Stream& stream, float* to, const float* from, int64_t rows,
             Flaw flaw = Flaw::kNone);
// Each row of 32 numbers the other way round, by one warp, through dynamic
// shared memory or by shuffles.
void ReverseRows(Stream& stream, float* to, const float* from, int64_t rows,
                 bool shuffles, Flaw flaw = Flaw::kNone);
// Every eight lanes for themselves: to[i] = the sum of from over i's eight,
// through shared memory that they use twice. With kNoWarpBarrier they look at
// the next eight's.
void SumEights(Stream& stream, float* to, const float* from, int64_t rows,
               Flaw flaw = Flaw::kNone);
// to[i] = from[i] by 16 bytes.
void CopyPacks(Stream& stream, float* to, const float* from, int64_t packs,
               Flaw flaw = Flaw::kNone);
// *sum = sum of all numbers: blocks add up their part, the last one the parts.
// `parts` has room for `blocks`, *count is 0 before and after.
void SumAll(Stream& stream, float* sum, float* parts, unsigned* count,
            const float* from, int64_t n, int blocks);
// counts[v] = how often values[i] == v, by atomic operations. With kTwoWriters
// without them.
void Count(Stream& stream, int* counts, const int* values, int64_t n,
           Flaw flaw = Flaw::kNone);
// out[0..8]: what thread 37 of 64 gets of: any, all and ballot of being odd,
// and, or and count of it over the block, the lane 3 below, the lane 3 above in
// its eight, and the sum of the lanes of its eight.
void Votes(Stream& stream, int* out);
// to = a b on tensor cores, matrices of 16 x 16, which are transposed in shared
// memory or not.
void Multiply(Stream& stream, float* to, const float* a, const float* b,
              bool transposed, Flaw flaw = Flaw::kNone);
// The block's and the thread's indices: to[i] = i over a grid of 2 x 3 x 2
// blocks of 4 x 3 x 2 threads.
void Indices(Stream& stream, int* to);
// Takes a step down a chain of calls that fill the stack.
void Deep(Stream& stream, float* to, int depth);

}  // namespace delink::simt_test
