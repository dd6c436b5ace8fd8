// Against figures computed by hand.
#include "offload/plan/bounds.h"

#include <gtest/gtest.h>

namespace delink::offload::bounds_test {
namespace {

constexpr ParamForms kWhole{};
constexpr ParamForms kSplit{.master = MasterForm::kSplit};
constexpr ParamForms kSplitBF16{.master = MasterForm::kSplit,
                                .moments = StateStorage::kBF16};
constexpr ParamForms kSplit8Bit{.master = MasterForm::kSplit,
                                .moments = StateStorage::kBlock8};
constexpr ParamForms kNoMaster{.master = MasterForm::kNone};
constexpr ParamForms kFp32{.weights = DType::kF32, .gradients = DType::kF32};
constexpr double kScales8 = 2 * 4 / 256.0;  // of a block, m's and v's

// 450 TFLOP/s, 50 GB/s each way, 150 GB/s of host memory.
constexpr StepRates kGpu{
    .flops = 450e12, .to_device = 50e9, .to_host = 50e9, .host_memory = 150e9};

TEST(Bounds, BytesOfAParameterByForm) {
  const HostHomes all;
  EXPECT_EQ(HostBytes(BytesOf(kWhole), all), 16);
  EXPECT_EQ(HostBytes(BytesOf(kNoMaster), all), 12);
  EXPECT_EQ(HostBytes(BytesOf(kSplit), all), 14);
  EXPECT_EQ(HostBytes(BytesOf(kSplitBF16), all), 10);
  EXPECT_EQ(HostBytes(BytesOf(kSplit8Bit), all), 8 + kScales8);
  EXPECT_EQ(HostBytes(BytesOf(kFp32), all), 16);
  ParamForms forms = kWhole;
  forms.gradients = DType::kF32;
  EXPECT_EQ(HostBytes(BytesOf(forms), all), 18);
  // Of some of it.
  EXPECT_EQ(HostBytes(BytesOf(kWhole), {.weights = false}), 14);
  EXPECT_EQ(HostBytes(BytesOf(kWhole), {.gradients = false}), 14);
  EXPECT_EQ(HostBytes(BytesOf(kSplit), {.state = false}), 4);
}

// g 2 + 2, w 2 + 2, master and moments twice; w once more where it is a part of
// the master.
TEST(Bounds, HostMemoryTrafficOfAnUpdate) {
  EXPECT_EQ(HostTraffic(BytesOf(kWhole)), 32);
  EXPECT_EQ(HostTraffic(BytesOf(kSplit)), 30);
  EXPECT_EQ(HostTraffic(BytesOf(kSplitBF16)), 22);
  EXPECT_EQ(HostTraffic(BytesOf(kSplit8Bit)), 18 + 2 * kScales8);
  EXPECT_EQ(HostTraffic(BytesOf(kNoMaster)), 26);
  // g 4 + 4, w 4 + 4 + 4, m and v 8 + 8.
  EXPECT_EQ(HostTraffic(BytesOf(kFp32)), 36);
}

TEST(Bounds, WhatAnUpdateOnTheDeviceStreams) {
  const auto expect = [](const ParamForms& forms, const HostHomes& homes,
                         double in, double out) {
    const StreamedBytes bytes = StreamedBy(BytesOf(forms), homes);
    EXPECT_EQ(bytes.in, in);
    EXPECT_EQ(bytes.out, out);
  };
  const HostHomes state{.weights = false, .gradients = false};
  expect(kSplitBF16, state, 6, 6);
  expect(kSplit8Bit, state, 4 + kScales8, 4 + kScales8);
  expect(kSplitBF16, {}, 10, 8);
  // A whole master needs no weight, but it comes.
  expect(kWhole, {}, 16, 14);
  expect(kFp32, {}, 16, 12);
  expect(kWhole, {.state = false}, 4, 2);
}

// F / B, F / 2B, F / 2B, F b / 4 B', F b / 2 B', F (s + w) / 2B.
TEST(Bounds, TokensFromWhichOnEachIsFree) {
  const FreeFrom split = TokensFrom(BytesOf(kSplitBF16), {}, kGpu);
  EXPECT_DOUBLE_EQ(split.weights_in_forward, 9000);
  EXPECT_DOUBLE_EQ(split.weights_in_backward, 4500);
  EXPECT_DOUBLE_EQ(split.gradients_out, 4500);
  EXPECT_DOUBLE_EQ(split.host_update_in_backward, 450e12 * 22 / (4 * 150e9));
  EXPECT_DOUBLE_EQ(split.host_update_in_forward, 33000);
  EXPECT_DOUBLE_EQ(split.device_update_in_forward, 54000);

  const FreeFrom resident = TokensFrom(
      BytesOf(kSplitBF16), {.weights = false, .gradients = false}, kGpu);
  EXPECT_DOUBLE_EQ(resident.device_update_in_forward, 27000);

  const FreeFrom fp32 = TokensFrom(BytesOf(kFp32), {}, kGpu);
  EXPECT_DOUBLE_EQ(fp32.weights_in_forward, 18000);
  EXPECT_DOUBLE_EQ(fp32.gradients_out, 9000);
  EXPECT_DOUBLE_EQ(fp32.host_update_in_forward, 54000);
}

TEST(Bounds, TheSlowerDirectionAndTheWorkDecide) {
  StepRates rates = kGpu;
  rates.to_host = 25e9;
  // Out 8 B at 25 GB/s is longer than in 12 B at 50.
  const FreeFrom slow = TokensFrom(BytesOf(kSplitBF16), {}, rates);
  EXPECT_DOUBLE_EQ(slow.device_update_in_forward, 72000);
  EXPECT_DOUBLE_EQ(slow.weights_in_backward, 4500);
  EXPECT_DOUBLE_EQ(slow.gradients_out, 9000);

  const FreeFrom again =
      TokensFrom(BytesOf(kSplitBF16), {}, kGpu, {.backward = 6});
  EXPECT_DOUBLE_EQ(again.gradients_out, 3000);
  EXPECT_DOUBLE_EQ(again.weights_in_forward, 9000);
  const FreeFrom experts =
      TokensFrom(BytesOf(kSplitBF16), {}, kGpu, {.total_over_active = 8});
  EXPECT_DOUBLE_EQ(experts.weights_in_forward, 72000);
  EXPECT_DOUBLE_EQ(experts.host_update_in_forward, 264000);
}

TEST(Bounds, WidthThatHidesBoundaries) {
  // F / 12 B.
  EXPECT_DOUBLE_EQ(WidthToHideBoundaries(kGpu), 750);
}

MachineRates Measured() {
  return {.tier = {.bytes_per_s = 3000e9},
          .pinned = {.to_device = 60e9,
                     .to_host = 60e9,
                     .both_to_device = 50e9,
                     .both_to_host = 40e9},
          .memory = {.read = 200e9,
                     .write = 90e9,
                     .rewrite = 150e9,
                     .triad = 100e9},
          .matmul = {{DType::kF32, 50e12}, {DType::kBF16, 450e12}},
          .updates = {{UpdatePlace::kHost, kSplitBF16, 5e9},
                      {UpdatePlace::kDevice, kSplitBF16, 100e9},
                      {UpdatePlace::kDevice, kNoMaster, 1e9}}};
}

TEST(Bounds, RatesAreThoseOfBothDirectionsAtOnce) {
  const StepRates rates = RatesOf(Measured(), DType::kBF16);
  EXPECT_EQ(rates.flops, 450e12);
  EXPECT_EQ(rates.to_device, 50e9);
  EXPECT_EQ(rates.to_host, 40e9);
  EXPECT_EQ(rates.host_memory, 150e9);
  EXPECT_EQ(RatesOf(Measured(), DType::kF32).flops, 50e12);
}

// 5 G parameters a second of 22 bytes on the host; 100 of 18 on the device.
TEST(Bounds, UpdatesTakeWhatWasMeasuredOfTheirForms) {
  const StepRates split = RatesOf(Measured(), kSplitBF16);
  EXPECT_EQ(split.flops, 450e12);
  EXPECT_EQ(split.to_host, 40e9);
  EXPECT_DOUBLE_EQ(split.host_memory, 110e9);
  EXPECT_DOUBLE_EQ(split.device_memory, 1800e9);
  const StepRates none = RatesOf(Measured(), kNoMaster);
  EXPECT_EQ(none.host_memory, 150e9);
  EXPECT_DOUBLE_EQ(none.device_memory, 22e9);
  // No updates in these forms were measured.
  EXPECT_EQ(RatesOf(Measured(), kWhole).device_memory, 3000e9);
}

}  // namespace
}  // namespace delink::offload::bounds_test
