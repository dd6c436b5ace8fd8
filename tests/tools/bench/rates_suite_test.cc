// A quick measurement of the rates that offloading is planned by: rough, but
// all there.
#include "tools/bench/rates_suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/comm/delayed_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "layers/kernels/cpu/threads.h"
#include "offload/rates/kernel_prices.h"
#include "recipes/record/rated_device.h"
#include "recipes/schema/machine_file.h"
#include "tools/bench/bandwidth.h"
#include "tools/bench/network_rates.h"
#include "tools/bench/update_rates.h"

namespace delink::bench::rates_suite_test {
namespace {

using offload::MachineRates;
using offload::UpdatePlace;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RatesSuite, MeasuresAllOfTheCpu) {
  cpu::SetThreads(1);
  std::vector<std::string> told;
  const absl::StatusOr<MachineRates> rates =
      MeasureRates({.threads = 1, .quick = true},
                   [&](const std::string& what) { told.push_back(what); });
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_EQ(rates->device, RatedDeviceOf(*NewCpuDevice()));
  EXPECT_EQ(rates->threads, 1);
  EXPECT_TRUE(rates->quick);
  EXPECT_FALSE(rates->pinned_memory);
  // A file of it has all that a file must have.
  const auto read = ParseMachine(ToToml(*rates), "rates");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_GT(rates->FlopsOf(DType::kF32), 1e7);
  EXPECT_GT(rates->disk.bytes, 1 << 20);
  for (const double rate : {rates->disk.read, rates->disk.write,
                            rates->disk.both_read, rates->disk.both_write}) {
    EXPECT_GT(rate, 1e4);
  }
  // Three classes of shapes of each type.
  EXPECT_EQ(rates->matmul.size() % 3, 0u);
  ASSERT_EQ(rates->updates.size(), 2 * RatedForms().size());
  for (const offload::ParamForms& forms : RatedForms()) {
    const double host = rates->ParamsPerSecond(UpdatePlace::kHost, forms);
    EXPECT_GT(host, 1e4);
    EXPECT_EQ(rates->ParamsPerSecond(UpdatePlace::kDevice, forms), host);
  }
  // Kernels of a step, each call once.
  const offload::KernelPrices prices(*rates, 1, 1);
  for (const char* const kernel :
       {"matmul", "layer_norm_forward", "attention_backward", "cross_entropy",
        "expert_act_forward", "grouped_matmul", "sum_squares", "adamw"}) {
    EXPECT_TRUE(prices.HasMeasured(kernel, DType::kF32)) << kernel;
  }
  for (const char* const work : {"fill_zero", "copy"}) {
    EXPECT_TRUE(prices.HasMeasured(work, DType{})) << work;
  }
  for (const offload::KernelRate& rate : rates->kernels) {
    EXPECT_GT(rate.seconds, 0);
    EXPECT_GT(rate.read + rate.written, 0) << rate.kernel;
    offload::KernelRate other = rate;
    EXPECT_EQ(std::ranges::count_if(rates->kernels,
                                    [&](const offload::KernelRate& one) {
                                      other.seconds = one.seconds;
                                      return one == other;
                                    }),
              1)
        << rate.kernel;
  }
  EXPECT_THAT(told, ::testing::Contains(HasSubstr("copies")));
}

TEST(RatesSuite, RatesAreBytesOverSeconds) {
  // Of any processor that runs this, also beside others.
  const absl::StatusOr<offload::HostMemoryRates> memory =
      MeasureHostMemory(2, 1 << 22, 5);
  ASSERT_TRUE(memory.ok()) << memory.status();
  for (const double rate :
       {memory->read, memory->write, memory->rewrite, memory->triad}) {
    EXPECT_GT(rate, 1e6);
    EXPECT_LT(rate, 1e13);
  }
}

// Exchanges over links take at least as long as these say.
TEST(RatesSuite, MeasuresTheNetwork) {
  constexpr Link kLink = {.latency = 2e-3, .bytes_per_second = 1e8};
  const absl::Status status =
      RunRanks(4, [&](Communicator& comm) -> absl::Status {
        DELINK_ASSIGN_OR_RETURN(auto inner, comm.Split(0, comm.rank()));
        DELINK_ASSIGN_OR_RETURN(const auto world,
                                DelayExchanges(std::move(inner), kLink));
        DELINK_ASSIGN_OR_RETURN(const MeasuredNetwork network,
                                MeasureNetwork(*world, {0, 0, 1, 1}, true));
        EXPECT_LE(network.inside.bytes_per_s, 1.01 * kLink.bytes_per_second);
        EXPECT_GT(network.inside.bytes_per_s, 0);
        EXPECT_GE(network.inside.latency, kLink.latency / 2);
        if (comm.rank() > 0) return absl::OkStatus();
        EXPECT_LE(network.between.bytes_per_s, 1.01 * kLink.bytes_per_second);
        EXPECT_GE(network.between.latency, kLink.latency / 2);
        EXPECT_GE(network.between.links, 1);
        EXPECT_LE(network.between.links, 2);
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
}

MachineRates Known() {
  return {.device = {.kind = "cpu", .name = "Abacus"},
          .tier = {.bytes_per_s = 11e9},
          .threads = 2,
          .load = 0.5,
          .pinned = {1e9, 2e9, 3e9, 4e9},
          .pageable = {5e9, 6e9, 7e9, 8e9},
          .memory = {.read = 9e9, .write = 10e9, .rewrite = 11e9, .triad = 8e9},
          .matmul = {{DType::kBF16, 300e9}},
          .updates = {{UpdatePlace::kHost, {}, 1.5e9}}};
}

TEST(RatesSuite, TextHasWhatWasMeasuredAndWhatFollows) {
  const std::string text = ToText(Known());
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("rates of cpu 'Abacus', 2 threads"),
            HasSubstr("the device is the CPU"),
            HasSubstr("9.0 read, 10.0 written, 11.0 rewritten, 8.0 triad"),
            HasSubstr(", GFLOP/s: bf16 of 1024 300.0\n"),
            HasSubstr("bf16     bf16      fp32   fp32       1.500    0.000"),
            // F / B in, F / 2B, F / 2B out, F / 2U, F 18 / 2B.
            HasSubstr("bf16     bf16      fp32   fp32          100        50 "
                      "       38         100           900\n"),
            // F 30 / 2B' where no rate was measured.
            HasSubstr("bf16     bf16      split  fp32          100        50 "
                      "       38         409           800\n")));
  EXPECT_THAT(text, Not(HasSubstr("busy")));
  // Of f32 weights nothing follows without its products.
  EXPECT_EQ(text.find("f32 ", text.find("free from")), std::string::npos);
}

TEST(RatesSuite, TextSaysWhatToDoubt) {
  MachineRates rates = Known();
  rates.load = 3;
  rates.device.kind = "cuda";
  EXPECT_THAT(ToText(rates), AllOf(HasSubstr("the machine was busy"),
                                   HasSubstr("the driver pinned no memory"),
                                   Not(HasSubstr("the device is the CPU"))));
  rates.pinned_memory = true;
  EXPECT_THAT(ToText(rates), Not(HasSubstr("pinned no memory")));
}

}  // namespace
}  // namespace delink::bench::rates_suite_test
