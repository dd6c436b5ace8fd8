#include <cstdint>

#include "layers/kernels/ref/ref.h"

namespace delink::ref {
namespace {

// Calls store(i, sum) for each element i of C, of type C.
template <typename T, typename C, typename Store>
void Multiply(const MatmulArgs& s, Store store) {
  const T* a = static_cast<const T*>(s.a);
  const T* b = static_cast<const T*>(s.b);
  const T* bias = static_cast<const T*>(s.bias);
  const C* c = static_cast<const C*>(s.c);
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = bias != nullptr ? bias[j] : 0.0;
      if (s.accumulate) sum += c[i * s.ldc + j];
      for (int64_t l = 0; l < s.k; ++l) {
        const double left = a[s.transpose_a ? l * s.lda + i : i * s.lda + l];
        const double right = b[s.transpose_b ? j * s.ldb + l : l * s.ldb + j];
        sum += left * right;
      }
      store(i * s.ldc + j, sum);
    }
  }
}

template <typename T, typename C>
void Multiply(const MatmulArgs& s) {
  C* c = static_cast<C*>(s.c);
  Multiply<T, C>(s, [c](int64_t i, double sum) { c[i] = static_cast<C>(sum); });
}

}  // namespace

template <typename T>
void Matmul(Stream&, const MatmulArgs& s) {
  if (s.c_is_gradient) {
    Multiply<T, Wide<T>>(s);
  } else {
    Multiply<T, T>(s);
  }
}

template <typename T>
void MatmulGelu(Stream&, const MatmulGeluArgs& s) {
  T* y = static_cast<T*>(s.product.c);
  T* pre = static_cast<T*>(s.pre);
  Multiply<T, T>(s.product, [&](int64_t i, double sum) {
    pre[i] = static_cast<T>(sum);
    y[i] = static_cast<T>(Gelu(sum, s.form));
  });
}

template <typename T>
void MatmulGeluBackward(Stream&, const MatmulGeluBackwardArgs& s) {
  T* dx = static_cast<T*>(s.product.c);
  const T* pre = static_cast<const T*>(s.pre);
  Multiply<T, T>(s.product, [&](int64_t i, double sum) {
    dx[i] = static_cast<T>(sum * GeluDerivative(pre[i], s.form));
  });
}

template <typename T>
void MatmulBiasGrad(Stream& stream, const MatmulBiasGradArgs& s) {
  const MatmulArgs& product = s.product;
  Matmul<T>(stream, product);
  BiasGrad<T>(stream, {.N = product.k,
                       .D = product.m,
                       .dy = product.a,
                       .db = s.db,
                       .accumulate = product.accumulate});
}

template <typename T>
void BiasGrad(Stream&, const BiasGradArgs& s) {
  const T* dy = static_cast<const T*>(s.dy);
  auto* db = static_cast<Wide<T>*>(s.db);
  for (int64_t d = 0; d < s.D; ++d) {
    double sum = s.accumulate ? db[d] : 0.0;
    for (int64_t n = 0; n < s.N; ++n) sum += dy[n * s.D + d];
    db[d] = static_cast<Wide<T>>(sum);
  }
}

#define DELINK_INSTANTIATE(T)                                                  \
  template void Matmul<T>(Stream&, const MatmulArgs&);                         \
  template void MatmulGelu<T>(Stream&, const MatmulGeluArgs&);                 \
  template void MatmulGeluBackward<T>(Stream&, const MatmulGeluBackwardArgs&); \
  template void MatmulBiasGrad<T>(Stream&, const MatmulBiasGradArgs&);         \
  template void BiasGrad<T>(Stream&, const BiasGradArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(double)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::ref
