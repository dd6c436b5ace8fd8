// Frequencies against values worked out from the papers, and the op against
// complex numbers.
#include "layers/ops/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <utility>

#include "framework/tensor/bfloat16.h"
#include "tests/testing/numbers.h"
#include "tests/testing/visit_runner.h"

namespace delink::rotary_test {
namespace {

using ops::RotaryConfig;
using ops::RotaryScaling;

TEST(RotaryFrequencies, FallFromOneToTheBase) {
  const RotaryAngles angles = ops::RotaryFrequencies({.dim = 8});
  EXPECT_EQ(angles.pairs, 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(angles.inverse_frequency[i], std::pow(10.0, -i), 1e-15);
  }
}

TEST(RotaryFrequencies, LinearDividesAll) {
  const RotaryAngles angles = ops::RotaryFrequencies(
      {.dim = 4, .scaling = RotaryScaling::kLinear, .factor = 8});
  EXPECT_NEAR(angles.inverse_frequency[0], 1.0 / 8, 1e-15);
  EXPECT_NEAR(angles.inverse_frequency[1], 0.01 / 8, 1e-15);
}

// The longest wave is stretched by the factor, the shortest not at all.
TEST(RotaryFrequencies, NtkDividesTheLast) {
  const RotaryConfig config = {.dim = 64};
  RotaryConfig scaled = config;
  scaled.scaling = RotaryScaling::kNtk;
  scaled.factor = 4;
  const RotaryAngles plain = ops::RotaryFrequencies(config);
  const RotaryAngles ntk = ops::RotaryFrequencies(scaled);
  EXPECT_EQ(ntk.inverse_frequency[0], 1.0);
  EXPECT_NEAR(ntk.inverse_frequency[31], plain.inverse_frequency[31] / 4,
              1e-15);
  for (int i = 1; i < 31; ++i) {
    EXPECT_LT(ntk.inverse_frequency[i], plain.inverse_frequency[i]);
    EXPECT_GT(ntk.inverse_frequency[i], plain.inverse_frequency[i] / 4);
  }
}

// Llama 3.1 8B, by an independent program: kept to pair 28, all scaled from
// pair 35 on.
TEST(RotaryFrequencies, Llama3) {
  const RotaryAngles angles =
      ops::RotaryFrequencies({.dim = 128,
                              .base = 500'000,
                              .scaling = RotaryScaling::kLlama3,
                              .factor = 8,
                              .low_freq_factor = 1,
                              .high_freq_factor = 4,
                              .original_length = 8192});
  const auto expect = [&](int pair, double value) {
    EXPECT_NEAR(angles.inverse_frequency[pair], value, 1e-13 * value) << pair;
  };
  expect(0, 1.0);
  expect(1, 0.8146172338565447);
  expect(28, 0.0032114459947525913);
  expect(29, 0.002166570763503359);
  expect(31, 0.0008567514129196321);
  expect(34, 0.00017850781276799638);
  expect(35, 9.556212353964683e-05);
  expect(63, 3.068925988914511e-07);
}

TEST(RotaryFrequenciesDeathTest, RefusesWhatHasNoPairs) {
  EXPECT_DEATH(ops::RotaryFrequencies({.dim = 7}), "7 elements");
  EXPECT_DEATH(ops::RotaryFrequencies({.dim = 2 * kMaxRotaryPairs + 2}),
               "258 elements");
}

// What the op makes of a copy: the input itself may not change.
template <typename T>
std::vector<T> Turned(const std::vector<T>& in, DType dtype, const Shape& shape,
                      int64_t H, int64_t Hkv, const RotaryAngles& angles,
                      int64_t position) {
  std::vector<T> x = in, y(in.size());
  const std::unique_ptr<Device> device = NewCpuDevice();
  testing::VisitRunner visit(
      {.device = device.get(), .layer = [&](Var v) {
         const Var copy = v.tape().Output(v.shape(), v.dtype());
         v.tape().device().Copy(v.tape().stream(), copy.data(), v.data(),
                                v.value().bytes());
         return ops::Rotary(copy, H, Hkv, angles);
       }});
  visit.Forward(Phase::kEval, {.training = false, .first_position = position},
                Tensor(x.data(), dtype, shape), Tensor(y.data(), dtype, shape));
  EXPECT_EQ(x, in);
  return y;
}

// qkv [2, 3, (2 + 2 * 1) * 6] of which the first 4 elements of each head turn.
TEST(Rotary, MultipliesByUnitComplexNumbers) {
  constexpr int64_t B = 2, T = 3, H = 2, Hkv = 1, Dh = 6;
  constexpr int64_t kHeads = H + 2 * Hkv;
  const std::vector<double> in =
      testing::Normals<double>("qkv", B * T * kHeads * Dh);
  for (const RotaryPairing pairing :
       {RotaryPairing::kHalf, RotaryPairing::kInterleaved}) {
    const RotaryAngles angles =
        ops::RotaryFrequencies({.dim = 4, .base = 100, .pairing = pairing});
    const std::vector<double> y =
        Turned(in, DType::kF64, {B, T, kHeads * Dh}, H, Hkv, angles, 40);
    for (int64_t n = 0; n < B * T * kHeads; ++n) {
      std::vector<double> expected(in.begin() + n * Dh,
                                   in.begin() + (n + 1) * Dh);
      for (int i = 0; n % kHeads < H + Hkv && i < 2; ++i) {
        const bool half = pairing == RotaryPairing::kHalf;
        double& a = expected[half ? i : 2 * i];
        double& b = expected[half ? i + 2 : 2 * i + 1];
        const double position = static_cast<double>(40 + n / kHeads % T);
        const auto turned = std::complex<double>(a, b) *
                            std::polar(1.0, position * std::pow(10.0, -i));
        a = turned.real();
        b = turned.imag();
      }
      for (int64_t d = 0; d < Dh; ++d) {
        EXPECT_NEAR(y[n * Dh + d], expected[d], 1e-14);
      }
    }
  }
}

// Positions at the end of long contexts, where frequencies or angles in fewer
// bits would be off by whole turns: head 0 of one token against double.
template <typename T>
void ExpectTurned(DType dtype, int64_t position, double base,
                  double tolerance) {
  constexpr int64_t Dh = 128;
  const RotaryAngles angles = ops::RotaryFrequencies({.dim = Dh, .base = base});
  const std::vector<T> in = testing::Normals<T>("qkv", 3 * Dh);
  const std::vector<T> y =
      Turned(in, dtype, {1, 1, 3 * Dh}, 1, 1, angles, position);
  const auto number = [](T value) {
    return static_cast<double>(static_cast<float>(value));
  };
  for (int64_t i = 0; i < Dh / 2; ++i) {
    const int64_t j = i + Dh / 2;
    const double angle =
        static_cast<double>(position) *
        std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(Dh));
    const auto turned = std::complex<double>(number(in[i]), number(in[j])) *
                        std::polar(1.0, angle);
    EXPECT_NEAR(number(y[i]), turned.real(), tolerance) << position;
    EXPECT_NEAR(number(y[j]), turned.imag(), tolerance) << position;
  }
}

TEST(Rotary, LastPositionsOfLongContexts) {
  for (const auto& [position, base] :
       {std::pair{4095, 1e4}, {4096, 1e4}, {131'071, 5e5}, {1'048'575, 1e6}}) {
    // Of normal numbers: half a unit of 8 bits of the largest, and of 24 some.
    ExpectTurned<BFloat16>(DType::kBF16, position, base, 0.02);
    ExpectTurned<float>(DType::kF32, position, base, 2e-6);
  }
}

}  // namespace
}  // namespace delink::rotary_test
