// Matrix products on the emulated device: the reference's, in the stream's
// order, with every operand checked as a kernel's accesses are.
#include <algorithm>
#include <memory>

#include "framework/device/backend.h"
#include "framework/device/cuda/stream.h"
#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/ref/ref.h"
#include "tests/testing/simt/simt.h"

namespace delink::cuda {
namespace {

// Rows of a stored matrix, without what lies between them.
template <typename Check>
void EachRow(const void* matrix, int64_t rows, int64_t columns, int64_t ld,
             size_t size, Check check) {
  const auto* const bytes = static_cast<const char*>(matrix);
  for (int64_t row = 0; row < rows; ++row) {
    check(const_cast<char*>(bytes) + row * ld * static_cast<int64_t>(size),
          columns * static_cast<int64_t>(size));
  }
}

template <typename T>
void CheckOperands(const MatmulArgs& s) {
  const auto read = [](const char* at, int64_t bytes) {
    simt::CheckRead(at, bytes);
  };
  const auto write = [](char* at, int64_t bytes) {
    simt::CheckWrite(at, bytes);
  };
  EachRow(s.a, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.lda,
          sizeof(T), read);
  EachRow(s.b, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.ldb,
          sizeof(T), read);
  if (s.bias != nullptr) EachRow(s.bias, 1, s.n, s.n, sizeof(T), read);
  const size_t size = s.c_is_gradient ? sizeof(float) : sizeof(T);
  if (s.accumulate) EachRow(s.c, s.m, s.n, s.ldc, size, read);
  EachRow(s.c, s.m, s.n, s.ldc, size, write);
}

// Runs `reference` on the args, once `check` has looked at their operands.
template <typename Args>
void EnqueueReference(Stream& stream, const char* name, const Args& args,
                      void (*check)(const Args&),
                      void (*reference)(Stream&, const Args&)) {
  simt::Enqueue(InfoOf(stream).handle, name, [=] {
    check(args);
    // The reference looks at no stream; this one has nothing to do with ours.
    const std::unique_ptr<Device> cpu = NewCpuDevice();
    reference(*cpu->NewStream(), args);
  });
}

}  // namespace

template <typename T>
void Matmul(Stream& stream, const MatmulArgs& args) {
  EnqueueReference<MatmulArgs>(stream, "Matmul", args, CheckOperands<T>,
                               ref::Matmul<T>);
}

template <typename T>
void MatmulGelu(Stream& stream, const MatmulGeluArgs& args) {
  EnqueueReference<MatmulGeluArgs>(
      stream, "MatmulGelu", args,
      [](const MatmulGeluArgs& s) {
        CheckOperands<T>(s.product);
        simt::CheckWrite(static_cast<char*>(s.pre),
                         s.product.m * s.product.n * int64_t{sizeof(T)});
      },
      ref::MatmulGelu<T>);
}

template <typename T>
void MatmulGeluBackward(Stream& stream, const MatmulGeluBackwardArgs& args) {
  EnqueueReference<MatmulGeluBackwardArgs>(
      stream, "MatmulGeluBackward", args,
      [](const MatmulGeluBackwardArgs& s) {
        CheckOperands<T>(s.product);
        simt::CheckRead(static_cast<const char*>(s.pre),
                        s.product.m * s.product.n * int64_t{sizeof(T)});
      },
      ref::MatmulGeluBackward<T>);
}

template <typename T>
void MatmulBiasGrad(Stream& stream, const MatmulBiasGradArgs& args) {
  EnqueueReference<MatmulBiasGradArgs>(
      stream, "MatmulBiasGrad", args,
      [](const MatmulBiasGradArgs& s) {
        CheckOperands<T>(s.product);
        const int64_t bytes = s.product.m * int64_t{sizeof(float)};
        if (s.product.accumulate) {
          simt::CheckRead(static_cast<const char*>(s.db), bytes);
        }
        simt::CheckWrite(static_cast<char*>(s.db), bytes);
      },
      ref::MatmulBiasGrad<T>);
}

#define DELINK_INSTANTIATE(T)                                                  \
  template void Matmul<T>(Stream&, const MatmulArgs&);                         \
  template void MatmulGelu<T>(Stream&, const MatmulGeluArgs&);                 \
  template void MatmulGeluBackward<T>(Stream&, const MatmulGeluBackwardArgs&); \
  template void MatmulBiasGrad<T>(Stream&, const MatmulBiasGradArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

std::string MissingLibrary() { return ""; }

}  // namespace delink::cuda
