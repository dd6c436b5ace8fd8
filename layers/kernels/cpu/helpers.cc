#include "layers/kernels/cpu/helpers.h"

#include <algorithm>

#include "framework/base/check.h"

namespace delink::cpu {
namespace {

int64_t Floats(int64_t count) {
  return (count * static_cast<int64_t>(sizeof(float)) + 63) / 64 * 64;
}

int Threads(int asked) { return asked > 0 ? asked : MaxThreads(); }

}  // namespace

// The query tile transposed, an output tile, the values; a tile of scores.
int64_t AttentionForwardScratch(const AttentionForwardArgs& s, int threads) {
  return Threads(threads) *
         Floats((2 * kQueryTile + kKeyTile) * s.Dh + kQueryTile * kKeyTile);
}

// Queries and output gradients, plain and transposed, the keys; two tiles of
// scores.
int64_t AttentionBackwardScratch(const AttentionBackwardArgs& s, int threads) {
  return Threads(threads) *
         Floats((4 * kQueryTile + kKeyTile) * s.Dh + 2 * kQueryTile * kKeyTile);
}

int TeamFor(int64_t bytes, int64_t bytes_per_thread) {
  DELINK_CHECK_GE(bytes, bytes_per_thread)
      << "attention: scratch for less than one thread";
  return static_cast<int>(
      std::min<int64_t>(bytes / bytes_per_thread, MaxThreads()));
}

RngKey SampleKey(const DropoutArgs& s, int64_t b) {
  return Fold(Fold(*s.step_key, s.name_hash),
              static_cast<uint64_t>(s.sample[b]));
}

void SumLosses(const CrossEntropyArgs& s) {
  for (int64_t n = 0; n < s.N; ++n) {
    if (s.targets[n] == s.ignore_index) continue;
    *s.loss_sum += s.row_loss[n];
    *s.count += 1;
    if (s.z_weight != 0) *s.z_sum += s.row_z[n];
  }
}

}  // namespace delink::cpu
