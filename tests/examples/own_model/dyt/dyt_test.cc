// The op and the model against central differences, and f32 against f64.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "dyt/dynamic_tanh.h"
#include "dyt/kernels.h"
#include "dyt/model.h"
#include "framework/device/backend.h"
#include "framework/tensor/bfloat16.h"
#include "tests/testing/cut_layer.h"
#include "tests/testing/gradcheck.h"

namespace dyt {
namespace {

using delink::BFloat16;
using delink::Param;
using delink::Var;
using delink::Wide;
using delink::testing::CutCase;
using delink::testing::ExpectGradients;
using delink::testing::ExpectModelGradients;
using delink::testing::LossOf;
using delink::testing::RandomBatch;
using delink::testing::RunCut;

// docs: gradients
TEST(DynamicTanh, GradientsMatchCentralDifferences) {
  for (const int64_t width : {1, 7, 16}) {
    ExpectGradients({.x = {2, 3, width},
                     .params = {{width}, {width}},
                     .op = [](Var x, const std::vector<Param*>& p) {
                       return DynamicTanh(x, *p[0], *p[1]);
                     }});
  }
}

TEST(Dyt, GradientsMatchCentralDifferences) {
  DytConfig c;
  c.layers = 2;
  c.vocab = 11;
  c.max_seq = 5;
  c.dim = 8;
  c.heads = 2;
  c.expand = 2;
  c.init_std = 0.4;
  const auto build = [c](const delink::Scope& s) { return BuildDyt(s, c); };
  ExpectModelGradients(build, RandomBatch(2, 5, c.vocab));
  ExpectModelGradients(build, RandomBatch(2, 5, c.vocab),
                       {.leaders = {{"attention", {0, 0}}, {"tanh", {0, 0}}}});
}
// docs: end

// docs: ranks
// Over ranks that each have a part of the weights, as modules say, and of the
// tokens between.
TEST(Dyt, IsCutOverRanks) {
  DytConfig c;
  c.layers = 2;
  c.vocab = 11;
  c.max_seq = 6;
  c.dim = 8;
  c.heads = 4;
  c.expand = 2;
  const auto build = [c](const delink::Scope& s) { return BuildDyt(s, c); };
  const auto batch = RandomBatch(2, c.max_seq, c.vocab);
  const CutCase model{.build = LossOf(build),
                      .B = batch.B,
                      .T = batch.T,
                      .D = c.dim,
                      .loss = true,
                      .tokens = batch.tokens,
                      .targets = batch.targets};
  for (const int ranks : {2, 4}) {
    for (const bool sequence : {false, true}) {
      ExpectSame(RunCut(model, {.ranks = ranks, .sequence = sequence}),
                 RunCut(model, {}), 1e-13);
    }
  }
}
// docs: end

template <typename T>
struct Computed {
  std::vector<T> y, dx;
  std::vector<Wide<T>> dslope, dscale;
};

template <typename T>
Computed<T> Compute(delink::DType dtype, int64_t N, int64_t D) {
  const Kernels* const kernels =
      delink::FindIn(ListOfKernels(), delink::DeviceKind::kCpu, dtype);
  const auto stream = delink::NewCpuDevice()->NewStream();
  std::vector<T> x, dy, slope, scale;
  for (int64_t i = 0; i < N * D; ++i) {
    x.push_back(static_cast<T>((i * 37 % 101 - 50) / 16.0));
    dy.push_back(static_cast<T>((i * 53 % 97 - 48) / 32.0));
  }
  for (int64_t d = 0; d < D; ++d) {
    slope.push_back(static_cast<T>(0.5 + d / 64.0));
    scale.push_back(static_cast<T>(1.5 - d / 32.0));
  }
  Computed<T> out{std::vector<T>(x.size()), std::vector<T>(x.size()),
                  std::vector<Wide<T>>(slope.size(), 1),
                  std::vector<Wide<T>>(slope.size())};
  kernels->forward(*stream,
                   {N, D, x.data(), slope.data(), scale.data(), out.y.data()});
  kernels->backward_input(*stream, {N, D, dy.data(), x.data(), slope.data(),
                                    scale.data(), out.dx.data()});
  kernels->backward_weight(
      *stream, {N, D, dy.data(), x.data(), slope.data(), scale.data(),
                out.dslope.data(), out.dscale.data(),
                /*accumulate_slope=*/true, /*accumulate_scale=*/false});
  return out;
}

template <typename T>
void ExpectClose(const std::vector<T>& actual,
                 const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i],
                tolerance * (1 + std::abs(expected[i])));
  }
}

TEST(DynamicTanh, FloatIsNearDouble) {
  for (const int64_t D : {1, 7, 33}) {
    const auto f32 = Compute<float>(delink::DType::kF32, 19, D);
    const auto f64 = Compute<double>(delink::DType::kF64, 19, D);
    ExpectClose(f32.y, f64.y, 1e-5);
    ExpectClose(f32.dx, f64.dx, 1e-5);
    ExpectClose(f32.dslope, f64.dslope, 1e-5);
    ExpectClose(f32.dscale, f64.dscale, 1e-5);
  }
}

// Outputs are rounded once, to eight bits; gradients of parameters are f32.
TEST(DynamicTanh, Bf16IsNearDouble) {
  for (const int64_t D : {1, 7, 33}) {
    const auto bf16 = Compute<BFloat16>(delink::DType::kBF16, 19, D);
    const auto f64 = Compute<double>(delink::DType::kF64, 19, D);
    ExpectClose(bf16.y, f64.y, 0x1p-8);
    ExpectClose(bf16.dx, f64.dx, 0x1p-8);
    ExpectClose(bf16.dslope, f64.dslope, 1e-5);
    ExpectClose(bf16.dscale, f64.dscale, 1e-5);
  }
}

}  // namespace
}  // namespace dyt
