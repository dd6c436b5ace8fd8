#include "offload/rates/kernel_prices.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace delink::offload {
namespace {

// Added to the squared distance of a product whose operands are transposed
// otherwise: as if its sizes were four times as large.
constexpr double kOtherForm = 4;
// A measured call that is nearer is taken for the same.
constexpr double kSame = 1e-6;

double Log(double x) { return std::log2(std::max(x, 1.0)); }
double Square(double x) { return x * x; }

// What a rate is of.
double AmountOf(double flops, double bytes) {
  return flops > 0 ? flops : bytes;
}

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
  const auto from = [this](const KernelRate& rate) {
    return std::abs(Log(static_cast<double>(rate.threads)) -
                    Log(static_cast<double>(threads_)));
  };
  for (const KernelRate& rate : machine.kernels) {
    auto& of = measured_[{rate.kernel, rate.dtype}];
    if (!of.empty() && from(rate) < from(*of.front())) of.clear();
    if (of.empty() || rate.threads == of.front()->threads) of.push_back(&rate);
  }
}

bool KernelPrices::Measured(std::string_view kernel, DType dtype) const {
  return measured_.contains({kernel, dtype});
}

double KernelPrices::Interpolated(
    const std::vector<const KernelRate*>& measured, const Work& work) const {
  double weights = 0, sum = 0;
  for (const KernelRate* const rate : measured) {
    const double distance = std::max(DistanceOf(*rate, work), kSame);
    const double weight = 1 / Square(distance);
    const double amount = AmountOf(rate->flops, rate->read + rate->written);
    weights += weight;
    sum += weight * std::log(amount / rate->seconds);
  }
  const double rate = std::exp(sum / weights);
  // A team of another size.
  const double teams = threads_ > 0
                           ? static_cast<double>(measured.front()->threads) /
                                 static_cast<double>(threads_)
                           : 1;
  return AmountOf(work.flops, work.bytes()) / rate * teams;
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
  const double amount = AmountOf(work.flops, work.bytes());
  if (amount <= 0) return 0;
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
