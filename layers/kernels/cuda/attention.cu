#include <algorithm>

#include "layers/kernels/cuda/attention.cuh"
#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/cuda/cudnn_attention.h"

namespace delink::cuda {
namespace {

constexpr int kNarrow = 64, kWide = 128;  // columns of a block

template <typename T>
bool CanPackHeads(const void* address, HeadStrides strides, int64_t Dh) {
  return CanPack<T>(address, Dh) && CanPack<T>(address, strides.row) &&
         CanPack<T>(address, strides.batch);
}

// The grid: a block for every tile of T rows of each head.
template <int kColumns>
dim3 GridOf(int64_t B, int64_t heads, int64_t T, int64_t Dh) {
  const int64_t tiles = (T + kTile - 1) / kTile;
  const int64_t parts = std::max<int64_t>((Dh + kColumns - 1) / kColumns, 1);
  return dim3(static_cast<unsigned>(B * heads * tiles),
              static_cast<unsigned>(parts));
}

template <typename T, int kColumns>
void Forward(Stream& stream, const AttentionForwardArgs& s) {
  const bool packed = CanPackHeads<T>(s.q, s.q_strides, s.Dh) &&
                      CanPackHeads<T>(s.k, s.kv_strides, s.Dh) &&
                      CanPackHeads<T>(s.v, s.kv_strides, s.Dh);
  Launch(AttentionForwardKernel<T, kColumns>,
         GridOf<kColumns>(s.B, s.H, s.Tq, s.Dh), {kAttentionThreads}, 0, stream,
         s, static_cast<float>(s.scale) * kLog2E, packed);
}

template <typename T, int kColumns>
void Backward(Stream& stream, const AttentionBackwardArgs& s) {
  const bool packed = CanPackHeads<T>(s.q, s.q_strides, s.Dh) &&
                      CanPackHeads<T>(s.k, s.kv_strides, s.Dh) &&
                      CanPackHeads<T>(s.v, s.kv_strides, s.Dh) &&
                      CanPackHeads<T>(s.d_o, s.o_strides, s.Dh);
  const float scale = static_cast<float>(s.scale);
  Launch(AttentionBackwardQueriesKernel<T, kColumns>,
         GridOf<kColumns>(s.B, s.H, s.Tq, s.Dh), {kAttentionThreads}, 0, stream,
         s, scale, packed);
  Launch(AttentionBackwardKeysKernel<T, kColumns>,
         GridOf<kColumns>(s.B, s.Hkv, s.Tk, s.Dh), {kAttentionThreads}, 0,
         stream, s, scale, packed);
}

}  // namespace

template <typename T>
void AttentionForward(Stream& stream, const AttentionForwardArgs& s) {
  if (s.Dh == 0) return;
  if (std::is_same_v<T, BFloat16> && CudnnAttentionForward(stream, s)) return;
  s.Dh <= kNarrow ? Forward<DeviceType<T>, kNarrow>(stream, s)
                  : Forward<DeviceType<T>, kWide>(stream, s);
}

template <typename T>
void AttentionBackward(Stream& stream, const AttentionBackwardArgs& s) {
  if (s.Dh == 0) return;
  if (std::is_same_v<T, BFloat16> && CudnnAttentionBackward(stream, s)) return;
  s.Dh <= kNarrow ? Backward<DeviceType<T>, kNarrow>(stream, s)
                  : Backward<DeviceType<T>, kWide>(stream, s);
}

template void AttentionForward<float>(Stream&, const AttentionForwardArgs&);
template void AttentionForward<BFloat16>(Stream&, const AttentionForwardArgs&);
template void AttentionBackward<float>(Stream&, const AttentionBackwardArgs&);
template void AttentionBackward<BFloat16>(Stream&,
                                          const AttentionBackwardArgs&);

}  // namespace delink::cuda
