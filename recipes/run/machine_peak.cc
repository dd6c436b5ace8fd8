#include "recipes/run/machine_peak.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "framework/base/check.h"
#include "framework/device/backend.h"
#include "layers/kernels/find_kernels.h"

namespace delink {

double MeasureMatmulPeak(DType dtype, int64_t size, double seconds) {
  const Kernels* const kernels = FindKernels(DeviceKind::kCpu, dtype);
  DELINK_CHECK(kernels != nullptr);
  const std::unique_ptr<Device> device = NewCpuDevice();
  const std::unique_ptr<Stream> stream = device->NewStream();
  // These halves are 0.5 in bf16, and two of them about 0.5 in f32.
  const auto halves = static_cast<size_t>(size * size * SizeOf(dtype) / 2);
  std::vector<uint16_t> a(halves, 0x3F00), b = a, c = a;
  const MatmulArgs args{.m = size,
                        .n = size,
                        .k = size,
                        .a = a.data(),
                        .lda = size,
                        .b = b.data(),
                        .ldb = size,
                        .c = c.data(),
                        .ldc = size};
  kernels->matmul(*stream, args);  // the first call sets things up
  const double flops = 2 * std::pow(static_cast<double>(size), 3);
  double best = 0, spent = 0;
  while (spent < seconds) {
    const auto start = std::chrono::steady_clock::now();
    kernels->matmul(*stream, args);
    const double took =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
    best = std::max(best, flops / took);
    spent += took;
  }
  return best;
}

}  // namespace delink
