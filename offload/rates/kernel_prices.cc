#include "offload/rates/kernel_prices.h"

#include <algorithm>
#include <cmath>

#include "framework/base/rate.h"

namespace delink::offload {
namespace {

// Added to the squared distance of a product whose operands are transposed
// otherwise: as if its sizes were four times as large.
constexpr double kOtherForm = 4;
// A measured call that is nearer is taken for the same.
constexpr double kSame = 1e-6;

double Log(double x) { return std::log2(std::max(x, 1.0)); }
double Square(double x) { return x * x; }

// Squared, in powers of two.
double DistanceOf(const KernelRate& rate, const Work& work) {
  if (work.flops > 0) {
    const bool same = rate.transpose_a == work.transpose_a &&
                      rate.transpose_b == work.transpose_b;
    const auto between = [](int64_t a, int64_t b) {
      return Square(Log(static_cast<double>(a)) - Log(static_cast<double>(b)));
    };
    return between(rate.m, work.m) + between(rate.n, work.n) +
           between(rate.k, work.k) + (same ? 0 : kOtherForm);
  }
  // A kernel that also reads or writes something else has another share of
  // reads.
  const auto share = [](double read, double written) {
    return Log(1 + read) - Log(1 + written);
  };
  return Square(Log(rate.read + rate.written) - Log(work.bytes())) +
         Square(4 * (share(rate.read, rate.written) -
                     share(work.read, work.written)));
}

}  // namespace

KernelPrices::KernelPrices(const MachineRates& machine, int64_t ranks,
                           int64_t threads)
    : machine_(machine) {
  if (machine.device.kind == "cpu") {
    threads_ = std::max<int64_t>(1, threads);
    part_ = std::min(1.0, static_cast<double>(threads_) /
                              static_cast<double>(machine.threads));
    memory_part_ = 1 / static_cast<double>(std::max<int64_t>(1, ranks));
  }
  // The threads of all ranks work at once, and slow each other as those of one
  // team do.
  const int64_t busy = threads_ * std::max<int64_t>(1, ranks);
  const auto from = [busy](const KernelRate& rate) {
    return std::abs(Log(static_cast<double>(rate.threads)) -
                    Log(static_cast<double>(busy)));
  };
  for (const KernelRate& rate : machine.kernels) {
    auto& calls = measured_[{rate.kernel, rate.dtype}].calls;
    if (!calls.empty() && from(rate) < from(*calls.front())) calls.clear();
    if (calls.empty() || rate.threads == calls.front()->threads) {
      calls.push_back(&rate);
    }
  }
  for (auto& [kernel, of] : measured_) {
    const KernelRate* fastest = of.calls.front();
    for (const KernelRate* const call : of.calls) {
      if (call->seconds < fastest->seconds) fastest = call;
      of.flops_per_s = std::max(of.flops_per_s, call->flops / call->seconds);
      of.bytes_per_s = std::max(of.bytes_per_s,
                                (call->read + call->written) / call->seconds);
    }
    // What its work does not explain: nothing, if only large calls are listed.
    of.least = std::max(
        0.0, fastest->seconds -
                 of.Seconds(fastest->flops, fastest->read + fastest->written));
    for (const KernelRate* const call : of.calls) {
      of.longer.push_back(std::log(
          call->seconds / of.Seconds(call->flops, call->read + call->written)));
    }
  }
}

double KernelPrices::Measured::Seconds(double flops, double bytes) const {
  return least + Over(flops, flops_per_s) + Over(bytes, bytes_per_s);
}

bool KernelPrices::HasMeasured(std::string_view kernel, DType dtype) const {
  return measured_.contains({kernel, dtype});
}

double KernelPrices::Interpolated(const Measured& measured,
                                  const Work& work) const {
  double weights = 0, sum = 0;
  for (size_t i = 0; i < measured.calls.size(); ++i) {
    const double weight =
        1 / Square(std::max(DistanceOf(*measured.calls[i], work), kSame));
    weights += weight;
    sum += weight * measured.longer[i];
  }
  // A team of another size.
  const double teams =
      threads_ > 0 ? static_cast<double>(measured.calls.front()->threads) /
                         static_cast<double>(threads_)
                   : 1;
  return measured.Seconds(work.flops, work.bytes()) * std::exp(sum / weights) *
         teams;
}

double KernelPrices::ByClass(const Work& work) const {
  double seconds = work.bytes() / (machine_.tier.bytes_per_s * memory_part_);
  if (work.flops > 0) {
    const int64_t smallest = std::min({work.m, work.n, work.k});
    const double rate = machine_.FlopsOf(work.dtype, smallest) * part_;
    if (rate > 0) seconds = std::max(seconds, work.flops / rate);
  }
  // The host launches the next call while one works.
  return std::max(seconds, machine_.kernel_latency);
}

double KernelPrices::Seconds(const Work& work) const {
  const auto measured = measured_.find({work.kernel, work.dtype});
  if (work.flops <= 0 && work.bytes() <= 0) return 0;
  return measured != measured_.end() ? Interpolated(measured->second, work)
                                     : ByClass(work);
}

WorkSeconds KernelPrices::Seconds(const std::vector<KernelCall>& calls,
                                  int times) const {
  WorkSeconds seconds;
  for (const KernelCall& call : calls) {
    (call.work.product() ? seconds.products : seconds.others) +=
        Seconds(call.work) * static_cast<double>(times * call.count);
  }
  return seconds;
}

}  // namespace delink::offload
