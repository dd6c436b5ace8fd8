// Products of the rows of experts with their matrices, all experts in one
// launch (ref/experts.cc has the formulas). How many rows each has is known on
// the device alone.
//
// The rows of an expert e are cut into tiles of kTile rows, the last of which
// may have fewer. Its tile i has the number offsets[e] / kTile + e + i. These
// are less than cap / kTile + E and no two are equal, because the first number
// grows by at least the tiles of e from e to e + 1. So there is a block for
// each number, which finds its tile from the offsets; at most E blocks have
// none, besides those of rows that are not there. In a gradient of W, blocks
// have tiles of the matrices, and the rows are the depth of the product.
#pragma once

#include "layers/kernels/cuda/matmul.cuh"
#include "layers/kernels/cuda/tensor_tile.cuh"
#include "layers/kernels/expert_arguments.h"

namespace delink::cuda {

struct RowTile {
  int64_t e, first, count;  // rows
};
template <int kTile>
__device__ RowTile TileOfRows(const int32_t* offsets, int64_t E,
                              int64_t number) {
  // The last expert whose first tile's number is not larger.
  int64_t e = 0, end = E;
  while (end - e > 1) {
    const int64_t middle = (e + end) / 2;
    (offsets[middle] / kTile + middle <= number ? e : end) = middle;
  }
  const int64_t first = offsets[e] + (number - offsets[e] / kTile - e) * kTile;
  const int64_t count = offsets[e + 1] - first;
  return {e, first, count < kTile ? count : kTile};
}

// The product whose tile this block computes, from `row` and `column` on.
struct PlacedProduct {
  MatmulArgs product;
  int64_t row, column;
};
// `tiles` is the number of tiles that the columns of C have. False: nothing is
// to be computed.
template <typename T, typename P, int kTile>
__device__ bool PlaceBlock(const GroupedMatmulArgs& s, GroupedForm form,
                           unsigned tiles, PlacedProduct& to) {
  to.column = int64_t{blockIdx.x % tiles} * kTile;
  const unsigned number = blockIdx.x / tiles;
  if (form == GroupedForm::kWeight) {
    const auto row_tiles = static_cast<unsigned>((s.out + kTile - 1) / kTile);
    const int64_t e = number / row_tiles, first = s.offsets[e];
    const int64_t rows = s.offsets[e + 1] - first;
    if (rows == 0 && s.accumulate) return false;
    to.row = int64_t{number % row_tiles} * kTile;
    to.product = {.m = s.out,
                  .n = s.in,
                  .k = rows,
                  .transpose_a = true,
                  .a = static_cast<const T*>(s.y) + first * s.out,
                  .lda = s.out,
                  .b = static_cast<const T*>(s.x) + first * s.in,
                  .ldb = s.in,
                  .c = static_cast<P*>(s.w) + e * s.out * s.in,
                  .ldc = s.in,
                  .accumulate = s.accumulate};
    return true;
  }
  const RowTile rows = TileOfRows<kTile>(s.offsets, s.E, number);
  if (rows.count <= 0) return false;
  const bool forward = form == GroupedForm::kForward;
  T* const x = static_cast<T*>(s.x) + rows.first * s.in;
  T* const y = static_cast<T*>(s.y) + rows.first * s.out;
  to.row = 0;
  to.product = {.m = rows.count,
                .n = forward ? s.out : s.in,
                .k = forward ? s.in : s.out,
                .transpose_b = forward,
                .a = forward ? x : y,
                .lda = forward ? s.in : s.out,
                .b = static_cast<const T*>(s.w) + rows.e * s.out * s.in,
                .ldb = s.in,
                .c = forward ? y : x,
                .ldc = forward ? s.out : s.in};
  return true;
}

template <GroupedForm kForm, typename P>
__global__ void __launch_bounds__(kTensorThreads, 2)
    GroupedTensorKernel(GroupedMatmulArgs s, unsigned tiles,
                        TensorAccess access) {
  PlacedProduct at;
  if (!PlaceBlock<__nv_bfloat16, P, kTensorTile>(s, kForm, tiles, at)) return;
  TensorProduct<kForm == GroupedForm::kWeight, kForm == GroupedForm::kForward,
                P>(at.product, at.row, at.column, access);
}

// In f32, without tensor cores.
__global__ void __launch_bounds__(kMatmulThreads, 2)
    GroupedFloatKernel(GroupedMatmulArgs s, unsigned tiles) {
  PlacedProduct at;
  if (!PlaceBlock<float, float, kMatmulTile>(s, s.form, tiles, at)) return;
  TiledProduct<float, float>(at.product, at.row, at.column);
}

}  // namespace delink::cuda
