#include "layers/kernels/ref/ref.h"

namespace delink::ref {
namespace {

template <typename T, typename C>
void Multiply(const MatmulArgs& s) {
  const T* a = static_cast<const T*>(s.a);
  const T* b = static_cast<const T*>(s.b);
  const T* bias = static_cast<const T*>(s.bias);
  C* c = static_cast<C*>(s.c);
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = bias != nullptr ? bias[j] : 0.0;
      if (s.accumulate) sum += c[i * s.ldc + j];
      for (int64_t l = 0; l < s.k; ++l) {
        const double left = a[s.transpose_a ? l * s.lda + i : i * s.lda + l];
        const double right = b[s.transpose_b ? j * s.ldb + l : l * s.ldb + j];
        sum += left * right;
      }
      c[i * s.ldc + j] = static_cast<C>(sum);
    }
  }
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
void BiasGrad(Stream&, const BiasGradArgs& s) {
  const T* dy = static_cast<const T*>(s.dy);
  auto* db = static_cast<Wide<T>*>(s.db);
  for (int64_t d = 0; d < s.D; ++d) {
    double sum = s.accumulate ? db[d] : 0.0;
    for (int64_t n = 0; n < s.N; ++n) sum += dy[n * s.D + d];
    db[d] = static_cast<Wide<T>>(sum);
  }
}

template void Matmul<float>(Stream&, const MatmulArgs&);
template void Matmul<double>(Stream&, const MatmulArgs&);
template void Matmul<BFloat16>(Stream&, const MatmulArgs&);
template void BiasGrad<float>(Stream&, const BiasGradArgs&);
template void BiasGrad<double>(Stream&, const BiasGradArgs&);
template void BiasGrad<BFloat16>(Stream&, const BiasGradArgs&);

}  // namespace delink::ref
