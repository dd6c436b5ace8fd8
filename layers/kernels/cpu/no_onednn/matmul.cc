#include "layers/kernels/cpu/matmul.h"

#include "layers/kernels/cpu/threads.h"

namespace delink::cpu {
namespace {

// One row of C at a time, in the order of k, so the inner loop is over
// consecutive columns.
void Row(const MatmulArgs& s, int64_t i) {
  const float* a = static_cast<const float*>(s.a);
  const float* b = static_cast<const float*>(s.b);
  const float* bias = static_cast<const float*>(s.bias);
  float* c = static_cast<float*>(s.c) + i * s.ldc;
  for (int64_t j = 0; j < s.n; ++j) {
    if (!s.accumulate) c[j] = 0.0F;
    if (bias != nullptr) c[j] += bias[j];
  }
  if (s.transpose_b) {
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = 0.0;
      for (int64_t l = 0; l < s.k; ++l) {
        sum += double{a[s.transpose_a ? l * s.lda + i : i * s.lda + l]} *
               b[j * s.ldb + l];
      }
      c[j] += static_cast<float>(sum);
    }
    return;
  }
  for (int64_t l = 0; l < s.k; ++l) {
    const float left = a[s.transpose_a ? l * s.lda + i : i * s.lda + l];
    for (int64_t j = 0; j < s.n; ++j) c[j] += left * b[l * s.ldb + j];
  }
}

}  // namespace

void Matmul(Stream&, const MatmulArgs& s) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < s.m; ++i) Row(s, i);
}

}  // namespace delink::cpu
