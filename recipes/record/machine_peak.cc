#include "recipes/record/machine_peak.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <vector>

#include "framework/base/check.h"
#include "framework/tensor/buffer.h"
#include "layers/kernels/find_kernels.h"

namespace delink {
namespace {

double FlopsOf(int64_t size) {
  return 2 * std::pow(static_cast<double>(size), 3);
}

// Numbers repeat after this many bytes: 1023 pages and 256 bytes.
constexpr int64_t kPeriod = (int64_t{1023} << 12) + 256;

std::vector<uint16_t> Numbers(int64_t count, bool positive) {
  std::vector<uint16_t> values(static_cast<size_t>(count));
  uint32_t state = 1;
  for (uint16_t& value : values) {
    state = state * 1664525U + 1013904223U;
    const uint32_t sign = positive ? 0 : state >> 31 << 15;
    value = static_cast<uint16_t>(sign | (0x3d80U + (state >> 16) % 0x200));
  }
  return values;
}

}  // namespace

void FillWithNumbers(Device& device, Stream& stream, void* memory,
                     int64_t bytes, bool positive) {
  const std::vector<uint16_t> numbers =
      Numbers(std::min(bytes, kPeriod) / 2, positive);
  for (int64_t at = 0; at + 2 <= bytes; at += kPeriod) {
    device.CopyFromHost(stream, static_cast<char*>(memory) + at, numbers.data(),
                        std::min(bytes - at, kPeriod) / 2 * 2);
  }
  stream.Synchronize();
}

double MeasureMatmulPeak(Device& device, DType dtype, int64_t size,
                         double seconds, int64_t rows) {
  const Kernels* const kernels = FindKernels(device.kind(), dtype);
  DELINK_CHECK(kernels != nullptr);
  const std::unique_ptr<Stream> stream = device.NewStream("peak");
  if (!stream->Prepare().ok()) return 0;
  Buffer matrices[3];
  for (Buffer& matrix : matrices) {
    auto memory =
        Buffer::Allocate(device, size * size * SizeOf(dtype), "matrices");
    if (!memory.ok()) return 0;
    matrix = *std::move(memory);
    FillWithNumbers(device, *stream, matrix.data(), matrix.bytes());
  }
  const MatmulArgs args{.m = rows > 0 ? rows : size,
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
  const double flops =
      FlopsOf(size) * static_cast<double>(args.m) / static_cast<double>(size);
  double best = 0, spent = 0;
  while (spent < seconds) {
    const auto start = std::chrono::steady_clock::now();
    kernels->matmul(*stream, args);
    stream->Synchronize();
    const double took =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
    best = std::max(best, flops / took);
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
  device.Trim();
  return peak;
}

}  // namespace delink
