// Builds entries that only some devices have as one kernel from entries that
// all devices have.
#pragma once

#include "layers/kernels/arguments.h"

namespace delink {

class Stream;

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
