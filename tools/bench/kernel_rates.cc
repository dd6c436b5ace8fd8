#include "tools/bench/kernel_rates.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/tensor/buffer.h"
#include "layers/kernels/cpu/threads.h"
#include "layers/kernels/find_kernels.h"
#include "tools/bench/machine.h"
#include "tools/bench/op_case.h"
#include "tools/bench/shapes.h"

namespace delink::bench {
namespace {

using offload::KernelRate;

// Operands rotate in this much memory: in a step, too, most of a kernel's
// operands have left the caches.
constexpr int64_t kRotated = 128 * kMebibyte;
constexpr int64_t kMostSets = 4096;
constexpr double kSeconds = 0.01;
constexpr int kRounds = 3;

struct Shape {
  const char* name;
  std::vector<int64_t> tokens;
};

std::vector<Shape> ShapesOf(bool cuda, bool quick) {
  if (quick) return {{"moe-tiny", {64}}};
  if (cuda) return {{"gpt-124m", {4096, 32768}}, {"qwen-1.5b", {4096, 16384}}};
  return {{"gpt-10m", {256, 2048}},
          {"gpt-124m", {256, 1024}},
          {"moe-8x2", {256, 1024}},
          {"moe-tiny", {64, 1024}}};
}

// Zeroing and copying `bytes`.
std::vector<OpCase> DeviceCases(Device& device, int64_t bytes) {
  const auto zero = [&device, bytes](Pieces& m) {
    void* const to = m.Take(bytes, DType::kU8);
    return OpCall{.work = WorkOfZeroing(bytes),
                  .run = [&device, to, bytes](Stream& stream) {
                    device.FillZero(stream, to, bytes);
                  }};
  };
  const auto copy = [&device, bytes](Pieces& m) {
    void* const to = m.Take(bytes, DType::kU8);
    void* const from = m.Take(bytes, DType::kU8);
    return OpCall{.work = WorkOfCopy(bytes),
                  .run = [&device, to, from, bytes](Stream& stream) {
                    device.Copy(stream, to, from, bytes);
                  }};
  };
  return {{.name = "fill_zero", .make = zero}, {.name = "copy", .make = copy}};
}

std::vector<OpCase> CasesOf(Target& target, bool quick) {
  const bool cuda = IsCuda(target.kind());
  std::vector<OpCase> cases;
  for (const Shape& of : ShapesOf(cuda, quick)) {
    for (const int64_t tokens : of.tokens) {
      ModelShape shape = *FindModelShape(of.name);
      (cuda ? shape.gpu_step_tokens : shape.step_tokens) = tokens;
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        if (target.kernels(dtype) == nullptr) continue;
        for (OpCase& op : OpCases(shape, target.kind(), dtype)) {
          // The library's own products are there for comparison alone.
          if (!op.name.ends_with(", library")) cases.push_back(std::move(op));
        }
      }
    }
  }
  for (const int64_t bytes : {1 << 16, 1 << 20, 1 << 24}) {
    for (OpCase& op : DeviceCases(target.device(), bytes)) {
      cases.push_back(std::move(op));
    }
    if (quick) break;
  }
  return cases;
}

// Measures cases in memory that all have in turn.
class Cases {
 public:
  Cases(Target& target, bool quick)
      : target_(target), quick_(quick), all_(CasesOf(target, quick)) {}

  absl::Status Allocate() {
    int64_t most = 0;
    for (const OpCase& op : all_) most = std::max(most, BytesOf(op));
    DELINK_ASSIGN_OR_RETURN(
        memory_, Buffer::Allocate(target_.device(), most, "operands"));
    return absl::OkStatus();
  }

  // Each call once. Other programs of the machine make calls slower for a
  // while, so the median of several rounds counts.
  std::vector<KernelRate> Measure(int64_t threads) {
    std::vector<KernelRate> rates;
    std::vector<const OpCase*> measured;
    std::vector<std::vector<double>> all;  // seconds of each, by round
    for (const OpCase& op : all_) {
      Measure(op, threads, [&](const KernelRate& rate, const auto& seconds) {
        const auto same = [&rate](KernelRate other) {
          other.seconds = rate.seconds;
          return other == rate;
        };
        if (std::ranges::any_of(rates, same)) return;
        measured.push_back(&op);
        rates.push_back(rate);
        all.push_back({seconds()});
      });
    }
    for (int round = 1; round < (quick_ ? 1 : kRounds); ++round) {
      for (size_t i = 0; i < rates.size(); ++i) {
        Measure(*measured[i], threads, [&](const KernelRate&, const auto& now) {
          all[i].push_back(now());
        });
      }
    }
    for (size_t i = 0; i < rates.size(); ++i) {
      rates[i].seconds = Summarise(std::move(all[i])).median;
    }
    return rates;
  }

 private:
  static int64_t SetBytes(const OpCase& op) {
    Pieces count;
    op.make(count);
    return count.bytes();
  }
  int64_t SetsOf(int64_t bytes) const {
    if (quick_) return 1;
    return 1 + std::min(kRotated / std::max<int64_t>(bytes, 1), kMostSets);
  }
  int64_t BytesOf(const OpCase& op) const {
    const int64_t bytes = SetBytes(op);
    return SetsOf(bytes) * bytes;
  }

  // Calls take(rate without seconds, function that measures them).
  template <typename Take>
  void Measure(const OpCase& op, int64_t threads, const Take& take) {
    const int64_t bytes = SetBytes(op), sets = SetsOf(bytes);
    // What other kernels left there may be numbers that are slow to compute.
    target_.Fill(memory_.data(), sets * bytes);
    std::vector<OpCall> calls;
    for (int64_t i = 0; i < sets; ++i) {
      Pieces pieces(target_, memory_.at(i * bytes));
      calls.push_back(op.make(pieces));
    }
    const Work& work = calls[0].work;
    take(offload::RateOfCall(work, threads, 0), [&] {
      return target_
          .Measure(
              [&](int64_t i) { At(calls, i % sets).run(target_.stream()); },
              {.seconds = quick_ ? 0.0 : kSeconds, .least = quick_ ? 1 : 3})
          .median;
    });
  }

  Target& target_;
  const bool quick_;
  std::vector<OpCase> all_;
  Buffer memory_;
};

}  // namespace

absl::StatusOr<std::vector<KernelRate>> MeasureKernels(
    Target& target, const KernelRatesOptions& options,
    const std::function<void(const std::string&)>& progress) {
  const int before = cpu::MaxThreads();
  std::vector<KernelRate> rates;
  Cases cases(target, options.quick);
  DELINK_RETURN_IF_ERROR(cases.Allocate());
  std::set<int> teams{options.threads};
  if (!IsCuda(target.kind())) teams.insert(1);
  for (const int threads : teams) {
    progress(absl::StrCat("measuring kernels with ", threads, " thread(s)"));
    cpu::SetThreads(threads);
    for (KernelRate& rate : cases.Measure(threads)) {
      rates.push_back(std::move(rate));
    }
  }
  cpu::SetThreads(before);
  return rates;
}

}  // namespace delink::bench
