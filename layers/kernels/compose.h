// Builds entries that only some devices have as one kernel from entries that
// all devices have.
#pragma once

#include <cstdint>

#include "layers/kernels/arguments.h"
#include "layers/kernels/expert_arguments.h"

namespace delink {

class Stream;

// Calls multiply(MatmulArgs) for each expert of a grouped product of elements T
// whose offsets the host can read. Gradients that are not narrow are `P`.
template <typename T, typename P, typename Multiply>
void ForEachProduct(const GroupedMatmulArgs& s, Multiply multiply) {
  for (int64_t e = 0; e < s.E; ++e) {
    const int64_t first = s.offsets[e], rows = s.offsets[e + 1] - first;
    const bool wide = s.form == GroupedForm::kWeight && !s.narrow;
    const int64_t width = wide ? sizeof(P) : sizeof(T);
    T* const x = static_cast<T*>(s.x) + first * s.in;
    T* const y = static_cast<T*>(s.y) + first * s.out;
    void* const w = static_cast<char*>(s.w) + e * s.out * s.in * width;
    if (s.form == GroupedForm::kWeight) {
      if (rows == 0 && s.accumulate) continue;
      multiply(MatmulArgs{.m = s.out,
                          .n = s.in,
                          .k = rows,
                          .transpose_a = true,
                          .a = y,
                          .lda = s.out,
                          .b = x,
                          .ldb = s.in,
                          .c = w,
                          .ldc = s.in,
                          .accumulate = s.accumulate,
                          .c_is_gradient = wide});
      continue;
    }
    if (rows == 0) continue;
    const bool forward = s.form == GroupedForm::kForward;
    multiply(MatmulArgs{.m = rows,
                        .n = forward ? s.out : s.in,
                        .k = forward ? s.in : s.out,
                        .transpose_b = forward,
                        .a = forward ? x : y,
                        .lda = forward ? s.in : s.out,
                        .b = w,
                        .ldb = s.in,
                        .c = forward ? y : x,
                        .ldc = forward ? s.out : s.in});
  }
}

template <auto kMatmul, auto kBiasGrad, auto kGeluForward, auto kGeluBackward>
struct Composed {
  static void MatmulGelu(Stream& stream, const MatmulGeluArgs& s) {
    MatmulArgs product = s.product;
    product.c = s.pre;
    kMatmul(stream, product);
    kGeluForward(stream, {.count = product.m * product.n,
                          .form = s.form,
                          .x = s.pre,
                          .y = s.product.c});
  }

  static void MatmulGeluBackward(Stream& stream,
                                 const MatmulGeluBackwardArgs& s) {
    const MatmulArgs& product = s.product;
    kMatmul(stream, product);
    kGeluBackward(stream, {.count = product.m * product.n,
                           .form = s.form,
                           .dy = product.c,
                           .x = s.pre,
                           .dx = product.c});
  }

  static void MatmulBiasGrad(Stream& stream, const MatmulBiasGradArgs& s) {
    const MatmulArgs& product = s.product;
    kMatmul(stream, product);
    kBiasGrad(stream, {.N = product.k,
                       .D = product.m,
                       .dy = product.a,
                       .db = s.db,
                       .accumulate = product.accumulate});
  }
};

}  // namespace delink
