#include "layers/ops/matrix_product.h"

#include "framework/base/check.h"
#include "layers/kernels/find_kernels.h"

namespace delink {

void MultiplyMatrices(Device& device, Stream& stream, const MatrixProduct& p) {
  const Kernels* const kernels = FindKernels(device.kind(), p.dtype);
  DELINK_CHECK(kernels != nullptr) << ToString(p.dtype) << device.name();
  kernels->matmul(stream, {.m = p.m,
                           .n = p.n,
                           .k = p.k,
                           .transpose_a = p.transpose_a,
                           .transpose_b = p.transpose_b,
                           .a = p.a,
                           .lda = p.transpose_a ? p.m : p.k,
                           .b = p.b,
                           .ldb = p.transpose_b ? p.k : p.n,
                           .c = p.c,
                           .ldc = p.n});
}

}  // namespace delink
