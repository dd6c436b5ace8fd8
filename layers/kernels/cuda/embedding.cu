#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/cuda/embedding.cuh"

namespace delink::cuda {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A block of `threads`, with enough along x for `groups` of columns.
dim3 Block(int64_t groups, int threads) {
  int x = 1;
  while (x < threads && x < groups) x *= 2;
  return dim3(static_cast<unsigned>(x), static_cast<unsigned>(threads / x));
}

// Each y index of a block has a row; the threads along x share its columns.
struct RowGrid {
  dim3 grid, block;
};
RowGrid ShapeRowGrid(int64_t rows, int64_t groups) {
  const dim3 block = Block(groups, kGatherThreads);
  return {dim3(static_cast<unsigned>(CeilDiv(rows, block.y))), block};
}

// The least number of rows of a tile. It is small, so that there are many
// tiles. Tiles are larger if their partial sums would not fit the scratch
// memory.
constexpr int64_t kTileRows = 32;
constexpr int64_t PartialBytes(int64_t D) {
  return 2 * D * int64_t{sizeof(float)};
}

template <typename T, typename P, int kSize>
void SumRuns(Stream& stream, RunSums s) {
  const dim3 block = Block(CeilDiv(s.D, kSize), kRunThreads);
  const dim3 grid(static_cast<unsigned>(CeilDiv(s.D, int64_t{block.x} * kSize)),
                  static_cast<unsigned>(CeilDiv(s.tiles, block.y)));
  Launch(SumTiles<T, P, kSize>, grid, block, 0, stream, s);
  if (s.tiles > 1) Launch(JoinTiles<P, kSize>, grid, block, 0, stream, s);
}

// For a gradient of type P.
template <typename T, typename P>
void SumTokens(Stream& stream, const EmbeddingBackwardWeightArgs& s) {
  if (s.V * s.D == 0) return;
  const StreamInfo& info = InfoOf(stream);
  if (!s.accumulate) {
    DELINK_CUDA_CHECK(cudaMemsetAsync(
        s.dw, 0, static_cast<size_t>(s.V * s.D) * sizeof(P), info.handle));
  }
  constexpr int kSize = Pack<T>::kSize;
  const bool packed = CanPack<T>(s.dy, s.D) && CanPack<T>(s.dw, s.D);
  const int64_t sort_bytes = TokenSortBytes(std::min(s.N, kMaxSorted));
  char* const partial = static_cast<char*>(info.scratch) + sort_bytes;
  const int64_t most_tiles =
      std::max<int64_t>(1, (kScratchBytes - sort_bytes) / PartialBytes(s.D));
  for (int64_t first = 0; first < s.N; first += kMaxSorted) {
    const int64_t n = std::min(kMaxSorted, s.N - first);
    RunSums sums = {
        .n = n,
        .D = s.D,
        .rows = std::max(kTileRows, CeilDiv(n, most_tiles)),
        .tiles = 0,
        .sorted = SortTokens(stream, s.tokens + first, n,
                             {s.first_token, s.V, s.partial}, info.scratch),
        .dy = static_cast<const T*>(s.dy) + first * s.D,
        .dw = s.dw,
        .partial = reinterpret_cast<float*>(partial),
        .V = s.V,
        .accumulate = s.accumulate || first > 0};
    sums.tiles = CeilDiv(n, sums.rows);
    if (packed) {
      SumRuns<T, P, kSize>(stream, sums);
    } else {
      SumRuns<T, P, 1>(stream, sums);
    }
  }
}

template <typename T, typename P>
void SumPositions(Stream& stream, const EmbeddingBackwardPositionArgs& s) {
  if (s.Tmax * s.D == 0) return;
  constexpr int kSize = Pack<T>::kSize;
  const bool packed = CanPack<T>(s.dy, s.D) && CanPack<T>(s.dp, s.D);
  const RowGrid shape = ShapeRowGrid(s.Tmax, CeilDiv(s.D, packed ? kSize : 1));
  Launch(packed ? &SumSamples<T, P, kSize> : &SumSamples<T, P, 1>, shape.grid,
         shape.block, 0, stream, s);
}

}  // namespace

template <typename T>
void EmbeddingForward(Stream& stream, const EmbeddingForwardArgs& s) {
  using D = DeviceType<T>;
  const bool packed = CanPack<D>(s.w, s.D) && CanPack<D>(s.y, s.D) &&
                      (s.p == nullptr || CanPack<D>(s.p, s.D));
  if (s.B * s.T * s.D == 0) return;
  constexpr int kSize = Pack<D>::kSize;
  const RowGrid shape =
      ShapeRowGrid(s.B * s.T, CeilDiv(s.D, packed ? kSize : 1));
  Launch(packed ? &GatherRows<D, kSize> : &GatherRows<D, 1>, shape.grid,
         shape.block, 0, stream, s);
}

template <typename T>
void EmbeddingBackwardWeight(Stream& stream,
                             const EmbeddingBackwardWeightArgs& s) {
  using D = DeviceType<T>;
  if (s.narrow) return SumTokens<D, D>(stream, s);
  SumTokens<D, float>(stream, s);
}

template <typename T>
void EmbeddingBackwardPosition(Stream& stream,
                               const EmbeddingBackwardPositionArgs& s) {
  using D = DeviceType<T>;
  if (s.narrow) return SumPositions<D, D>(stream, s);
  SumPositions<D, float>(stream, s);
}

#define DELINK_INSTANTIATE(T)                                              \
  template void EmbeddingForward<T>(Stream&, const EmbeddingForwardArgs&); \
  template void EmbeddingBackwardWeight<T>(                                \
      Stream&, const EmbeddingBackwardWeightArgs&);                        \
  template void EmbeddingBackwardPosition<T>(                              \
      Stream&, const EmbeddingBackwardPositionArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::cuda
