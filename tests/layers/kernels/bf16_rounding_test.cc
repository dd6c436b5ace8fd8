// The rules of bf16 in arguments.h, by hand, on the reference and on what runs:
// sums in f32, one rounding to the nearest, gradients of parameters in f32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "framework/tensor/bfloat16.h"
#include "layers/kernels/cpu/targets.h"
#include "layers/kernels/find_kernels.h"
#include "tests/layers/kernels/calls.h"

namespace delink::testing::bf16_rounding_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Between 256 and 512 bf16 holds the even numbers.
std::vector<BFloat16> Halves(std::initializer_list<double> values) {
  std::vector<BFloat16> result;
  for (const double value : values) result.emplace_back(value);
  return result;
}

std::vector<double> Values(const std::vector<BFloat16>& x) {
  return {x.begin(), x.end()};
}

class Bf16Rounding : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Device> device_ = NewCpuDevice();
  std::unique_ptr<Stream> owned_ = device_->NewStream();
  Stream& stream_ = *owned_;
  const Kernels& kernels_ = GetParam()
                                ? ReferenceKernelsBf16()
                                : *FindKernels(DeviceKind::kCpu, DType::kBF16);
};

TEST_P(Bf16Rounding, ASumIsRoundedOnce) {
  // 256 + 1, + 1 + 1, + 1 + 1 + 1: every step alone would be a tie and stay.
  const auto a = Halves({256, 1, 0, 0, 256, 1, 1, 0, 256, 1, 1, 1});
  const auto b = Halves({1, 1, 1, 1});
  auto c = Halves({0, 0, 0});
  kernels_.matmul(stream_, ProductOf(3, 1, 4, a.data(), b.data(), c.data()));
  EXPECT_THAT(Values(c), ElementsAre(256, 258, 260));
}

TEST_P(Bf16Rounding, WhatIsAddedToCountsBeforeTheRounding) {
  const auto a = Halves({1, 1}), b = Halves({1, 1}), bias = Halves({1});
  auto c = Halves({256});
  MatmulArgs args = ProductOf(1, 1, 2, a.data(), b.data(), c.data());
  args.bias = bias.data();
  args.accumulate = true;
  kernels_.matmul(stream_, args);
  EXPECT_THAT(Values(c), ElementsAre(260));  // 259 is a tie
  auto y = Halves({256, 256});
  const auto x = Halves({1, 3});
  kernels_.accumulate(stream_, {.count = 2, .x = x.data(), .y = y.data()});
  EXPECT_THAT(Values(y), ElementsAre(256, 260));
}

// 4096 ones to a C of 1 and to one of 0; two rows of ones.
TEST_P(Bf16Rounding, GradientsOfParametersAreF32) {
  constexpr int64_t kRows = 4097, kWidth = 3;
  const std::vector<BFloat16> dy(kRows * kWidth, BFloat16(1));
  for (const bool accumulate : {false, true}) {
    std::vector<float> dw(kWidth * kWidth, 2.0F), db(kWidth, 2.0F);
    MatmulArgs product = WeightGradient(kWidth, kWidth, kRows, dy.data(),
                                        dy.data(), dw.data(), accumulate);
    product.c_is_gradient = true;
    kernels_.matmul(stream_, product);
    EXPECT_THAT(dw, Each(accumulate ? 4099.0F : 4097.0F));
    kernels_.bias_grad(stream_,
                       {kRows, kWidth, dy.data(), db.data(), accumulate});
    EXPECT_THAT(db, Each(accumulate ? 4099.0F : 4097.0F));
  }
}

// Gradients that are kept in bf16: between 4096 and 8192 it holds multiples of
// 32. A sum over tokens is f32 until it is stored, what is there is added
// before it is rounded, and a tie goes to the even number.
TEST_P(Bf16Rounding, NarrowGradientsAreRoundedOnce) {
  constexpr int64_t kRows = 4097, kWidth = 3;
  const std::vector<BFloat16> dy(kRows * kWidth, BFloat16(1));
  const std::vector<int32_t> tokens(kRows, 1);
  for (const bool accumulate : {false, true}) {
    const double sum = accumulate ? 4128 : 4096;
    auto dw = std::vector<BFloat16>(kWidth * kWidth, BFloat16(15));
    MatmulArgs product = WeightGradient(kWidth, kWidth, kRows, dy.data(),
                                        dy.data(), dw.data(), accumulate);
    kernels_.matmul(stream_, product);
    EXPECT_THAT(Values(dw), Each(4096));
    // A sum that is made in one piece: 513 is 512, and with 1.5 it is 516.
    auto one = std::vector<BFloat16>(kWidth * kWidth, BFloat16(1.5F));
    product.k = 513;
    product.c = one.data();
    kernels_.matmul(stream_, product);
    EXPECT_THAT(Values(one), Each(accumulate ? 516 : 512));
    auto table = Halves({17, 17, 17, 17, 17, 17});
    kernels_.embedding_backward_weight(stream_, {.N = kRows,
                                                 .D = kWidth,
                                                 .V = 2,
                                                 .tokens = tokens.data(),
                                                 .dy = dy.data(),
                                                 .dw = table.data(),
                                                 .accumulate = accumulate,
                                                 .narrow = true});
    const double absent = accumulate ? 17 : 0;
    EXPECT_THAT(Values(table),
                ElementsAre(absent, absent, absent, sum, sum, sum));
    auto positions = Halves({17, 17});
    kernels_.embedding_backward_position(stream_, {.B = kRows,
                                                   .T = 1,
                                                   .D = 1,
                                                   .Tmax = 2,
                                                   .first_position = 1,
                                                   .dy = dy.data(),
                                                   .dp = positions.data(),
                                                   .accumulate = accumulate,
                                                   .narrow = true});
    EXPECT_THAT(Values(positions), ElementsAre(absent, sum));
    const std::vector<float> x(2, 4097);
    auto y = Halves({17, 15});
    kernels_.round_gradient(
        stream_,
        {.count = 2, .x = x.data(), .y = y.data(), .accumulate = accumulate});
    EXPECT_THAT(Values(y), ElementsAre(sum, 4096));
  }
}

TEST_P(Bf16Rounding, NormsKeepTheirStatisticsInF32) {
  const auto x = Halves({1, 2, 4}), w = Halves({1, 1, 1});
  std::vector<BFloat16> y(3);
  float mean = 0, rstd = 0;
  kernels_.layer_norm_forward(stream_, {1, 3, 0.0, x.data(), w.data(), nullptr,
                                        y.data(), &mean, &rstd});
  EXPECT_FLOAT_EQ(mean, 7.0F / 3);
  EXPECT_FLOAT_EQ(rstd, std::sqrt(9.0F / 14));
  const double exact = (4 - 7.0 / 3) * std::sqrt(9.0 / 14);
  EXPECT_EQ(y[2], BFloat16(exact));
}

TEST_P(Bf16Rounding, EmbeddingGradientsAddUpInF32) {
  const std::vector<int32_t> tokens(1000, 1);
  const std::vector<BFloat16> dy(1000, BFloat16(1.0078125));
  std::vector<float> dw(2), dp(1);
  kernels_.embedding_backward_weight(stream_, {.N = 1000,
                                               .D = 1,
                                               .V = 2,
                                               .tokens = tokens.data(),
                                               .dy = dy.data(),
                                               .dw = dw.data()});
  EXPECT_THAT(dw, ElementsAre(0.0F, 1007.8125F));
  kernels_.embedding_backward_position(
      stream_,
      {.B = 1000, .T = 1, .D = 1, .Tmax = 1, .dy = dy.data(), .dp = dp.data()});
  EXPECT_THAT(dp, ElementsAre(1007.8125F));
}

TEST_P(Bf16Rounding, OverflowIsInfiniteAndNotANumberStays) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto a = Halves({3e38, -3e38, nan, 1}), b = Halves({3e38, -3e38, 1, 1});
  auto y = Halves({0, 0, 0, 0});
  kernels_.add(stream_,
               {.count = 4, .a = a.data(), .b = b.data(), .y = y.data()});
  EXPECT_EQ(float{y[0]}, std::numeric_limits<float>::infinity());
  EXPECT_EQ(float{y[1]}, -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(float{y[2]}));
  EXPECT_EQ(float{y[3]}, 2.0F);
  const auto one = Halves({1});
  auto c = Halves({0});
  kernels_.matmul(stream_, ProductOf(1, 1, 1, &a[2], one.data(), c.data()));
  EXPECT_TRUE(std::isnan(float{c[0]}));
}

// Every number there is, on every instruction set: one that rounds has its own
// mind on the smallest.
TEST(Bf16Targets, EveryNumberIsItselfAndSmallOnesAreRoundedToo) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  const std::unique_ptr<Stream> stream = device->NewStream();
  std::vector<BFloat16> x, zero(1 << 16, BFloat16(0)), y(1 << 16);
  for (int bits = 0; bits < 1 << 16; ++bits) {
    x.push_back(BFloat16::FromBits(static_cast<uint16_t>(bits)));
  }
  const auto key = KeyFromSeed(1);
  const int64_t sample = 0;
  for (const cpu::InstructionSet& target : cpu::Targets()) {
    if (!target.supported) continue;
    SCOPED_TRACE(target.name);
    target.bf16->add(
        *stream,
        {.count = 1 << 16, .a = x.data(), .b = zero.data(), .y = y.data()});
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(float{x[i]})) {
        EXPECT_TRUE(std::isnan(float{y[i]})) << i;
      } else {
        EXPECT_EQ(y[i].bits, float{x[i]} == 0 ? 0 : x[i].bits) << i;
      }
    }
    // What is kept is multiplied by 10 / 7, in f32.
    target.bf16->dropout(*stream, {.B = 1,
                                   .T = 1,
                                   .D = 1 << 16,
                                   .rate = 0.3,
                                   .step_key = &key,
                                   .name_hash = 1,
                                   .sample = &sample,
                                   .x = x.data(),
                                   .y = y.data()});
    int64_t small = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(float{x[i]}) || float{y[i]} == 0) continue;
      const BFloat16 expected(float{x[i]} * static_cast<float>(1 / (1 - 0.3)));
      EXPECT_EQ(y[i].bits, expected.bits) << i;
      small += std::fabs(float{y[i]}) < std::numeric_limits<float>::min();
    }
    EXPECT_GT(small, 100);
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, Bf16Rounding, ::testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "reference" : "chosen";
                         });

}  // namespace
}  // namespace delink::testing::bf16_rounding_test
