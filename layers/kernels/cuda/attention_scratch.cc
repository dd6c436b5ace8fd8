#include "layers/kernels/cuda/attention_scratch.h"

#include <algorithm>
#include <type_traits>

#include "framework/device/cuda/scratch.h"
#include "framework/tensor/bfloat16.h"
#include "layers/kernels/cuda/cuda.h"

namespace delink::cuda {
namespace {

// A call of the backward pass aims to stay below this. It is enough for some
// hundred tiles of scores a multiprocessor, and little compared with the
// weights of any model that fills a GPU.
constexpr int64_t kAim = int64_t{512} << 20;
// Above this our own kernels are used; they are slower but need no scratch.
constexpr int64_t kMost = int64_t{8} << 30;
constexpr int64_t kMaxHead = 256;
constexpr int64_t kHeadUnit = 8;  // 16 bytes
constexpr int64_t kTileRows = 128;
// For alignment, and for other versions, which may need more.
constexpr int64_t kSlack = int64_t{1} << 20;

int64_t RoundUp(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// As in cuDNN 9.19. On sm_80 and sm_90: the scores' gradients and, if heads are
// grouped, dk and dv of each query head, in bf16. On sm_100: only dk and dv, in
// f32. On all of them also f32 statistics. If sums may be in any order, dq in
// f32 replaces the scores' gradients, on sm_80 twice.
int64_t Workspace(const AttentionBackwardArgs& s, int64_t samples,
                  int64_t kv_heads) {
  const int64_t T = RoundUp(s.Tq, kTileRows);
  const int64_t heads = kv_heads * (s.H / s.Hkv);
  const int64_t sums = s.deterministic ? 2 * T : 8 * s.Dh;
  const int64_t row = s.H == s.Hkv ? sums : std::max(sums + 4 * s.Dh, 8 * s.Dh);
  return samples * heads * T * (row + 4) + kSlack;
}

// The largest divisor of `count` whose bytes(divisor) stay below the aim, or 1.
template <typename Bytes>
int64_t LargestDivisor(int64_t count, Bytes bytes) {
  for (int64_t parts = 1; parts < count; ++parts) {
    if (count % parts == 0 && bytes(count / parts) <= kAim) {
      return count / parts;
    }
  }
  return 1;
}

template <typename Args>
bool Fits(const Args& s) {
  return s.positions == nullptr && s.B > 0 && s.H > 0 && s.Tq == s.Tk &&
         s.Tq > 1 && s.Dh > 0 && s.Dh <= kMaxHead && s.Dh % kHeadUnit == 0;
}

}  // namespace

AttentionPart BackwardPart(const AttentionBackwardArgs& s) {
  AttentionPart part{1, s.Hkv, 0};
  part.samples = LargestDivisor(
      s.B, [&](int64_t samples) { return Workspace(s, samples, s.Hkv); });
  if (part.samples == 1) {
    part.kv_heads = LargestDivisor(
        s.Hkv, [&](int64_t kv_heads) { return Workspace(s, 1, kv_heads); });
  }
  part.workspace = Workspace(s, part.samples, part.kv_heads);
  return part;
}

bool IsForCudnn(const AttentionForwardArgs& s) { return Fits(s); }
bool IsForCudnn(const AttentionBackwardArgs& s) {
  return Fits(s) && BackwardPart(s).workspace <= kMost;
}

template <typename T>
int64_t AttentionForwardScratch(const AttentionForwardArgs&, int) {
  return 0;
}

template <typename T>
int64_t AttentionBackwardScratch(const AttentionBackwardArgs& s, int) {
  if (!std::is_same_v<T, BFloat16> || !IsForCudnn(s)) return 0;
  const int64_t workspace = BackwardPart(s).workspace;
  return workspace <= kScratchBytes ? 0 : workspace;
}

template int64_t AttentionForwardScratch<float>(const AttentionForwardArgs&,
                                                int);
template int64_t AttentionForwardScratch<BFloat16>(const AttentionForwardArgs&,
                                                   int);
template int64_t AttentionBackwardScratch<float>(const AttentionBackwardArgs&,
                                                 int);
template int64_t AttentionBackwardScratch<BFloat16>(
    const AttentionBackwardArgs&, int);

}  // namespace delink::cuda
