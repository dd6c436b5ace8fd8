// Against seconds computed by hand.
#include "offload/rates/kernel_prices.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace delink::offload::kernel_prices_test {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

Work Product(int64_t m, int64_t n, int64_t k, bool transpose_b = false) {
  return {.kernel = "matmul",
          .dtype = kF32,
          .flops = 2.0 * static_cast<double>(m * n * k),
          .read = 4.0 * static_cast<double>(k * (m + n)),
          .written = 4.0 * static_cast<double>(m * n),
          .m = m,
          .n = n,
          .k = k,
          .transpose_b = transpose_b};
}

Work Moves(double bytes, DType dtype = kF32) {
  return {.kernel = "add",
          .dtype = dtype,
          .read = bytes * 2 / 3,
          .written = bytes / 3};
}

KernelRate Measured(const Work& work, double rate, int64_t threads) {
  return RateOfCall(work, threads,
                    (work.flops > 0 ? work.flops : work.bytes()) / rate);
}

MachineRates Machine(const char* kind) {
  return {
      .device = {.kind = kind},
      .tier = {.bytes_per_s = 1e9},
      .threads = 8,
      .matmul = {{kF32, 8e12, 1024}, {kF32, 2e12, 256}},
      .kernels = {Measured(Product(64, 64, 64), 1e9, 1),
                  Measured(Product(64, 64, 4096), 4e9, 1),
                  Measured(Product(64, 64, 64, true), 9e9, 1),
                  Measured(Moves(3e4), 1e8, 1), Measured(Moves(3e6), 4e8, 1),
                  Measured(Moves(3e4), 3e8, 4), Measured(Moves(3e6), 6e8, 4)}};
}

// On one thread.
TEST(KernelPrices, MeasuredCallsTakeWhatTheyTook) {
  const MachineRates machine = Machine("cpu");
  const KernelPrices prices(machine, 1, 1);
  for (const KernelRate& rate : machine.kernels) {
    if (rate.threads != 1) continue;
    const Work work = rate.flops > 0
                          ? Product(rate.m, rate.n, rate.k, rate.transpose_b)
                          : Moves(rate.read + rate.written);
    EXPECT_NEAR(prices.Seconds(work), rate.seconds, 1e-6 * rate.seconds);
  }
}

TEST(KernelPrices, RatesBetweenMeasuredCallsAreBetweenTheirs) {
  const MachineRates machine = Machine("cpu");
  const KernelPrices prices(machine, 1, 1);
  // The calls took 0.225 + 0.075 ms, and 7.5 of 0.225 + 7.5 ms. In the middle,
  // of logarithms, the factor is the geometric mean.
  EXPECT_NEAR(prices.Seconds(Moves(3e5)),
              (0.225 + 0.75) * 1e-3 * std::sqrt(7.5 / 7.725), 1e-8);
  double before = 1e8;
  for (const double bytes : {6e4, 2e5, 5e5, 2e6}) {
    const double rate = bytes / prices.Seconds(Moves(bytes));
    EXPECT_GT(rate, before);
    EXPECT_LT(rate, 4e8);
    before = rate;
  }
  const auto rate = [&](const Work& work) {
    return work.flops / prices.Seconds(work);
  };
  EXPECT_GT(rate(Product(64, 64, 2048)), rate(Product(64, 64, 128)));
  // The form counts more than the size.
  EXPECT_GT(rate(Product(64, 64, 128, true)), 7e9);
  EXPECT_LT(rate(Product(64, 64, 128, false)), 2e9);
}

// Those of four threads are nearer to three and to eight, on which calls take
// less than on four in the same measure.
TEST(KernelPrices, TeamsOfOtherSizesTakeTheNearest) {
  const MachineRates machine = Machine("cpu");
  const auto seconds = [&](int64_t threads) {
    return KernelPrices(machine, 1, threads).Seconds(Moves(3e6));
  };
  EXPECT_NEAR(seconds(4), 3e6 / 6e8, 1e-8);
  EXPECT_NEAR(seconds(8), seconds(4) / 2, 1e-8);
  EXPECT_NEAR(seconds(3), seconds(4) * 4 / 3, 1e-8);
  EXPECT_NEAR(seconds(1), 3e6 / 4e8, 1e-8);
  // Four ranks of one thread slow each other as four threads of one do.
  EXPECT_NEAR(KernelPrices(machine, 4, 1).Seconds(Moves(3e6)), 4 * seconds(4),
              1e-8);
}

TEST(KernelPrices, ALargeCallAloneIsARate) {
  MachineRates machine = Machine("cpu");
  machine.kernels = {Measured(Moves(3e8), 1e9, 1)};
  const KernelPrices prices(machine, 1, 1);
  EXPECT_NEAR(prices.Seconds(Moves(3e4)), 3e-5, 1e-9);
}

// A file need not have the bytes of products, nor the FLOPs of a call.
TEST(KernelPrices, CallsMayLackAnAmount) {
  MachineRates machine = Machine("cpu");
  for (KernelRate& rate : machine.kernels) rate.read = rate.written = 0;
  const KernelPrices prices(machine, 1, 1);
  EXPECT_NEAR(prices.Seconds(Product(64, 64, 64)), 2 * 64 * 64 * 64 / 1e9,
              1e-9);
  // Between the two that were measured, which nothing tells apart.
  EXPECT_NEAR(prices.Seconds(Moves(3e4)), std::sqrt(0.3e-3 * 7.5e-3), 1e-9);
}

TEST(KernelPrices, OtherCallsTakeTheirClassAndTheirBytes) {
  MachineRates machine = Machine("cuda");
  machine.kernels.clear();
  machine.kernel_latency = 5e-6;
  const KernelPrices prices(machine, 8, 1);
  EXPECT_FALSE(prices.HasMeasured("add", kF32));
  EXPECT_NEAR(prices.Seconds(Moves(1e6)), 1e-3, 1e-12);
  // A launch takes longer.
  EXPECT_NEAR(prices.Seconds(Moves(1e3)), 5e-6, 1e-12);
  machine.tier.bytes_per_s = 1e15;
  const auto rate = [&](const Work& work) {
    return work.flops / prices.Seconds(work);
  };
  // 512 is between both classes; smaller and larger ones have the nearest.
  EXPECT_NEAR(rate(Product(4096, 512, 4096)), 4e12, 1e6);
  EXPECT_NEAR(rate(Product(4096, 4096, 64)), 2e12, 1e6);
  EXPECT_NEAR(rate(Product(4096, 4096, 4096)), 8e12, 1e6);
  // Nothing is known of the type but memory's rate.
  Work other = Product(4096, 4096, 4096);
  other.dtype = kBF16;
  machine.kernel_latency = 0;
  EXPECT_NEAR(prices.Seconds(other), other.bytes() / 1e15, 1e-12);
}

TEST(KernelPrices, RanksOnACpuHaveTheirPart) {
  MachineRates machine = Machine("cpu");
  machine.kernels.clear();
  const KernelPrices whole(machine, 1, 8), part(machine, 4, 2);
  for (const Work& work : {Moves(1e6), Product(2048, 2048, 2048)}) {
    EXPECT_NEAR(part.Seconds(work), 4 * whole.Seconds(work), 1e-9);
  }
  machine.device.kind = "cuda";
  const KernelPrices own(machine, 4, 2);
  EXPECT_NEAR(own.Seconds(Moves(1e6)), whole.Seconds(Moves(1e6)), 1e-9);
}

TEST(KernelPrices, ProductsAreApartFromOthers) {
  const MachineRates machine = Machine("cpu");
  const KernelPrices prices(machine, 8, 1);
  const Work product = Product(64, 64, 64), other = Moves(3e4);
  const WorkSeconds seconds = prices.Seconds({{product, 3}, {other, 2}}, 2);
  EXPECT_NEAR(seconds.products, 6 * prices.Seconds(product), 1e-12);
  EXPECT_NEAR(seconds.others, 4 * prices.Seconds(other), 1e-12);
  EXPECT_GT(seconds.products, 0);
  EXPECT_EQ(prices.Seconds({.kernel = "add"}), 0);
}

}  // namespace
}  // namespace delink::offload::kernel_prices_test
