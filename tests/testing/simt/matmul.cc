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

}  // namespace

template <typename T>
void Matmul(Stream& stream, const MatmulArgs& args) {
  simt::Enqueue(InfoOf(stream).handle, "Matmul", [args] {
    CheckOperands<T>(args);
    // The reference looks at no stream; this one has nothing to do with ours.
    const std::unique_ptr<Device> cpu = NewCpuDevice();
    ref::Matmul<T>(*cpu->NewStream(), args);
  });
}

template void Matmul<float>(Stream&, const MatmulArgs&);
template void Matmul<BFloat16>(Stream&, const MatmulArgs&);

std::string MissingLibrary() { return ""; }

}  // namespace delink::cuda
