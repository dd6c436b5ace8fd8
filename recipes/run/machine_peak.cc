#include "recipes/run/machine_peak.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "framework/base/check.h"
#include "framework/tensor/buffer.h"
#include "layers/kernels/find_kernels.h"

namespace delink {
namespace {

double FlopsOf(int64_t size) {
  return 2 * std::pow(static_cast<double>(size), 3);
}

// 0x3F00 everywhere: 0.5 in bf16, and two of them about 0.5 in f32. Zeros would
// be faster than any real numbers.
void FillHalves(Device& device, Stream& stream, const Buffer& to) {
  const std::vector<uint16_t> halves(
      static_cast<size_t>(std::min<int64_t>(to.bytes(), int64_t{1} << 20) / 2),
      0x3F00);
  const auto piece = static_cast<int64_t>(halves.size() * 2);
  for (int64_t at = 0; at < to.bytes(); at += piece) {
    device.CopyFromHost(stream, to.at(at), halves.data(),
                        std::min(piece, to.bytes() - at));
  }
  stream.Synchronize();
}

}  // namespace

double MeasureMatmulPeak(Device& device, DType dtype, int64_t size,
                         double seconds) {
  const Kernels* const kernels = FindKernels(device.kind(), dtype);
  DELINK_CHECK(kernels != nullptr);
  const std::unique_ptr<Stream> stream = device.NewStream();
  Buffer matrices[3];
  for (Buffer& matrix : matrices) {
    auto memory = Buffer::Allocate(device, size * size * SizeOf(dtype));
    if (!memory.ok()) return 0;
    matrix = *std::move(memory);
    FillHalves(device, *stream, matrix);
  }
  const MatmulArgs args{.m = size,
                        .n = size,
                        .k = size,
                        .a = matrices[0].data(),
                        .lda = size,
                        .b = matrices[1].data(),
                        .ldb = size,
                        .c = matrices[2].data(),
                        .ldc = size};
  kernels->matmul(*stream, args);  // the first call sets things up
  stream->Synchronize();
  double best = 0, spent = 0;
  while (spent < seconds) {
    const auto start = std::chrono::steady_clock::now();
    kernels->matmul(*stream, args);
    stream->Synchronize();
    const double took =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
    best = std::max(best, FlopsOf(size) / took);
    spent += took;
  }
  return best;
}

double MeasureMatmulPeak(DType dtype, int64_t size, double seconds) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  return MeasureMatmulPeak(*device, dtype, size, seconds);
}

double RunMatmulPeak(Device& device, DType dtype) {
  if (!IsCuda(device.kind())) return MeasureMatmulPeak(dtype);
  constexpr double kCall = 1e-3, kSeconds = 0.01;
  constexpr int64_t kLargest = 16384;
  double peak = 0;
  for (int64_t size = 128; size <= kLargest; size *= 2) {
    const double speed = MeasureMatmulPeak(device, dtype, size, kSeconds);
    peak = std::max(peak, speed);
    if (speed == 0 || FlopsOf(size) / speed >= kCall) break;
  }
  return peak;
}

}  // namespace delink
