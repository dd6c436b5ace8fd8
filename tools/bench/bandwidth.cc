#include "tools/bench/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/device/host_arena.h"
#include "framework/tensor/buffer.h"
#include "tools/bench/timing.h"

namespace delink::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Seconds of each pass: all threads begin `work(thread)` together, and the last
// one ends it.
std::vector<double> Passes(int threads, int passes,
                           const std::function<void(int)>& work) {
  std::barrier gate(threads);
  std::vector<double> seconds;
  const auto run = [&](int thread) {
    for (int i = 0; i < passes; ++i) {
      gate.arrive_and_wait();
      const Clock::time_point begin = Clock::now();
      work(thread);
      gate.arrive_and_wait();
      if (thread == 0) seconds.push_back(Since(begin));
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(run, t);
  run(0);
  for (std::thread& other : others) other.join();
  return seconds;
}

double FastestPass(int threads, int passes,
                   const std::function<void(int)>& work) {
  const std::vector<double> seconds = Passes(threads, passes, work);
  return *std::min_element(seconds.begin(), seconds.end());
}
double MedianPass(int threads, int passes,
                  const std::function<void(int)>& work) {
  return Summarise(Passes(threads, passes, work)).median;
}

// Numbers from 1 to 2 in unpredictable order.
void FillRandom(double* x, int64_t begin, int64_t end) {
  auto state = static_cast<uint64_t>(begin);
  for (int64_t i = begin; i < end; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    x[i] = std::bit_cast<double>(0x3FF0000000000000ULL | (state >> 12));
  }
}

// Integers, since a sum of floats is one long chain of additions.
uint64_t Sum(const uint64_t* x, int64_t begin, int64_t end) {
  uint64_t sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += x[i];
  return sum;
}

void Triad(double* __restrict__ a, const double* __restrict__ b,
           const double* __restrict__ c, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) a[i] = b[i] + 0.5 * c[i];
}

// A thread's share of an array, in as many pieces as an optimizer has arrays,
// since a core's bandwidth grows with the number of places that it reads at.
constexpr int64_t kStreams = 4;
struct Share {
  double* x;
  int64_t piece;
};

// Calls `line` for each kLine elements of a share, in turn from each piece.
constexpr int64_t kLine = 16;
template <typename Line>
void ForLines(const Share& s, const Line& line) {
  for (int64_t i = 0; i + kLine <= s.piece; i += kLine) {
    for (int64_t k = 0; k < kStreams; ++k) line(k, s.x + k * s.piece + i);
  }
}

// Has a chain of additions for each lane, so that only memory limits it.
double SumOf(const Share& s) {
  double sums[kStreams][kLine] = {};
  ForLines(s, [&](int64_t k, const double* x) {
    for (int64_t i = 0; i < kLine; ++i) sums[k][i] += x[i];
  });
  double sum = 0;
  for (const auto& lanes : sums) {
    for (const double lane : lanes) sum += lane;
  }
  return sum;
}

void WriteTo(const Share& s, double value) {
  ForLines(s, [&](int64_t, double* x) {
    value += 1;  // not a fill, for which libraries use special stores
    for (int64_t i = 0; i < kLine; ++i) x[i] = value;
  });
}

void Rewrite(const Share& s) {
  ForLines(s, [](int64_t, double* x) {
    for (int64_t i = 0; i < kLine; ++i) x[i] = 3 - x[i];
  });
}

}  // namespace

Bandwidth MeasureBandwidth(int threads, int64_t bytes, int passes) {
  const int64_t n = std::max<int64_t>(threads, bytes / 8);
  const auto size = static_cast<size_t>(n);
  // Not initialised, so that the thread that uses a page touches it first.
  const std::unique_ptr<double[]> a(new double[size]), b(new double[size]),
      c(new double[size]);
  const std::unique_ptr<uint64_t[]> x(new uint64_t[size]);
  const auto begin = [&](int thread) { return n * thread / threads; };
  FastestPass(threads, 1, [&](int t) {
    for (int64_t i = begin(t); i < begin(t + 1); ++i) {
      a[i] = b[i] = c[i] = 1;
      x[i] = static_cast<uint64_t>(i);
    }
  });
  // Kept, so that the sums are not found to be of no use.
  std::atomic<uint64_t> sums = 0;
  const double read = FastestPass(threads, passes, [&](int t) {
    sums += Sum(x.get(), begin(t), begin(t + 1));
  });
  const double triad = FastestPass(threads, passes, [&](int t) {
    Triad(a.get(), b.get(), c.get(), begin(t), begin(t + 1));
  });
  const double array = 8 * static_cast<double>(n);
  return {.read = array / read, .triad = 3 * array / triad, .bytes = 8 * n};
}

absl::StatusOr<offload::HostMemoryRates> MeasureHostMemory(int threads,
                                                           int64_t bytes,
                                                           int passes) {
  const int64_t piece = AlignUp(bytes / 8 / threads / kStreams, kLine);
  const int64_t share = kStreams * piece, n = threads * share;
  const std::unique_ptr<Device> device = NewCpuDevice();
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<HostArena> arena,
                          HostArena::Create(*device, 3 * AlignUp(8 * n)));
  double* arrays[3];
  for (double*& array : arrays) {
    DELINK_ASSIGN_OR_RETURN(void* const memory, arena->Take(8 * n, "arrays"));
    array = static_cast<double*>(memory);
  }
  double *const a = arrays[0], *const b = arrays[1], *const c = arrays[2];
  const auto of = [&](int t) { return Share{a + t * share, piece}; };
  Passes(threads, 1, [&](int t) {
    for (double* const array : arrays) {
      FillRandom(array, t * share, (t + 1) * share);
    }
  });
  // Kept, so that the sums are not found to be of no use.
  std::atomic<double> sums = 0;
  const double array = 8 * static_cast<double>(n);
  offload::HostMemoryRates rates;
  rates.read = array / MedianPass(threads, passes,
                                  [&](int t) { sums.store(SumOf(of(t))); });
  rates.write =
      array / MedianPass(threads, passes, [&](int t) { WriteTo(of(t), t); });
  rates.rewrite =
      2 * array / MedianPass(threads, passes, [&](int t) { Rewrite(of(t)); });
  rates.triad = 3 * array / MedianPass(threads, passes, [&](int t) {
                  Triad(a, b, c, t * share, (t + 1) * share);
                });
  return rates;
}

absl::StatusOr<Bandwidth> MeasureCopy(Target& target, int64_t bytes,
                                      int passes) {
  Device& device = target.device();
  DELINK_ASSIGN_OR_RETURN(const Buffer from,
                          Buffer::Allocate(device, bytes, "copies"));
  DELINK_ASSIGN_OR_RETURN(const Buffer to,
                          Buffer::Allocate(device, bytes, "copies"));
  target.Fill(from.data(), bytes);
  const auto begin = device.NewTimingEvent(), end = device.NewTimingEvent();
  double best = std::numeric_limits<double>::infinity();
  for (int pass = 0; pass < passes; ++pass) {
    target.stream().Record(*begin);
    device.Copy(target.stream(), to.data(), from.data(), bytes);
    target.stream().Record(*end);
    best = std::min(best, device.SecondsBetween(*begin, *end));
  }
  const double speed = 2 * static_cast<double>(bytes) / best;
  return Bandwidth{.read = speed, .triad = speed, .bytes = bytes};
}

}  // namespace delink::bench
