// Every op in bf16 against itself in double on the same inputs: outputs and
// gradients of inputs are rounded as often as the case says, gradients of
// parameters are f32, or kept in bf16.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/tensor/bfloat16.h"
#include "layers/ops/add.h"
#include "layers/ops/causal_attention.h"
#include "layers/ops/dropout.h"
#include "layers/ops/embedding_lookup.h"
#include "layers/ops/gelu.h"
#include "layers/ops/head_loss.h"
#include "layers/ops/kernels_of.h"
#include "layers/ops/linear.h"
#include "layers/ops/norm.h"
#include "layers/ops/qk_norm.h"
#include "layers/ops/rotary.h"
#include "layers/ops/swiglu.h"
#include "tests/testing/cut_layer.h"
#include "tests/testing/numbers.h"
#include "tests/testing/visit_runner.h"

namespace delink::testing::bf16_test {
namespace {

using Params = std::vector<Param*>;
using Vector = std::vector<double>;

struct OpCase {
  Shape x;  // [B, T, D], or [B, T] of tokens
  std::vector<Shape> params;
  std::function<Var(Var, const Params&)> op;  // undefined for a loss
  // Roundings on the longest way to an output, to the gradient of x, and to
  // what the gradient of a parameter is summed from.
  int forward = 1, backward = 1, weight = 0;
  bool loss = false;
  std::vector<int32_t> tokens = {};  // x is these when not empty
  std::vector<int32_t> targets = {};
};

CutCase CutOf(const OpCase& c) {
  return {.build = [c](const Scope& s) -> VisitRunner::Layer {
            Params params;
            for (size_t i = 0; i < c.params.size(); ++i) {
              params.push_back(&(s / ("p" + std::to_string(i)))
                                    .Param("weight", {.shape = c.params[i]}));
            }
            return [op = c.op, params](Var x) { return op(x, params); };
          },
          .B = c.x[0],
          .T = c.x[1],
          .D = c.tokens.empty() ? c.x[2] : 0,
          .loss = c.loss,
          .tokens = c.tokens,
          .targets = c.targets};
}

// On one rank. Gradients of parameters are added to what a first pass has left.
CutResult Run(const CutCase& c, DType dtype, MemoryMode memory,
              bool narrow = false, bool halves = false) {
  return RunCut(c, {.dtype = dtype,
                    .bf16_gradients = narrow,
                    .memory = memory,
                    .halves = halves,
                    .times = 2});
}

double Error(const Vector& actual, const Vector& expected) {
  return RelativeError<double, double>(actual, expected);
}

void ExpectSameBits(const CutResult& a, const CutResult& b) {
  EXPECT_EQ(a.y, b.y);
  EXPECT_EQ(a.dx, b.dx);
  EXPECT_EQ(a.gradients, b.gradients);
  EXPECT_EQ(a.loss.loss_sum, b.loss.loss_sum);
}

// A rounding changes a number by at most 2^-8 of it, and a tensor, whose errors
// are independent and seldom at their worst, by less: the ops here pass errors
// on at about their size, so they add up to less than 2^-8 for each. Beside
// that, f32.
double Bound(int roundings) { return roundings * 0x1p-8 + 1e-5; }

// Where gradients are kept in bf16 each element is what it is in f32, rounded
// after each pass (by 2^-8 of it at most in all), and all else has the same
// bits.
void ExpectNarrowGradients(const CutCase& c, const CutResult& wide) {
  CutResult narrow = Run(c, DType::kBF16, MemoryMode::kHeap, /*narrow=*/true);
  ExpectSameBits(narrow,
                 Run(c, DType::kBF16, MemoryMode::kPlanned, /*narrow=*/true));
  for (const auto& [name, expected] : wide.gradients) {
    const Vector& gradient = narrow.gradients.at(name);
    for (size_t i = 0; i < expected.size(); ++i) {
      const double g = expected[i];
      EXPECT_NEAR(gradient[i], g, 0x1p-8 * std::abs(g) + 1e-5)
          << name << ", element " << i;
    }
  }
  narrow.gradients = wide.gradients;
  ExpectSameBits(narrow, wide);
}

void ExpectRounded(const OpCase& op) {
  const CutCase c = CutOf(op);
  const CutResult exact = Run(c, DType::kF64, MemoryMode::kHeap);
  const CutResult heap = Run(c, DType::kBF16, MemoryMode::kHeap);
  EXPECT_LT(Error(heap.y, exact.y), Bound(op.forward)) << "y";
  EXPECT_LT(Error(heap.dx, exact.dx), Bound(op.backward)) << "dx";
  for (const auto& [name, gradient] : exact.gradients) {
    EXPECT_LT(Error(heap.gradients.at(name), gradient), Bound(op.weight))
        << name;
  }
  EXPECT_NEAR(heap.loss.loss_sum, exact.loss.loss_sum,
              Bound(op.forward) * exact.loss.loss_sum);
  ExpectSameBits(Run(c, DType::kBF16, MemoryMode::kPlanned), heap);
  ExpectNarrowGradients(c, heap);
  // A backward in two halves has the bits of the whole.
  for (const auto& [dtype, narrow] :
       {std::pair{DType::kF32, false}, std::pair{DType::kBF16, false},
        std::pair{DType::kBF16, true}}) {
    ExpectSameBits(Run(c, dtype, MemoryMode::kPlanned, narrow, /*halves=*/true),
                   Run(c, dtype, MemoryMode::kPlanned, narrow));
  }
}

TEST(Bf16, Linear) {
  ExpectRounded({.x = {2, 30, 48},
                 .params = {{33, 48}, {33}},
                 .op = [](Var x, const Params& p) {
                   return ops::Linear(x, *p[0], p[1]);
                 }});
  // So long a sum over tokens that bf16 would lose it.
  ExpectRounded(
      {.x = {1, 3000, 5}, .params = {{7, 5}}, .op = [](Var x, const Params& p) {
         return ops::Linear(x, *p[0], nullptr);
       }});
}

TEST(Bf16, Norms) {
  ExpectRounded({.x = {1, 40, 65},
                 .params = {{65}, {65}},
                 .op = [](Var x, const Params& p) {
                   return ops::LayerNorm(x, *p[0], *p[1], 1e-5);
                 }});
  ExpectRounded(
      {.x = {1, 40, 65}, .params = {{65}}, .op = [](Var x, const Params& p) {
         return ops::RmsNorm(x, *p[0], 1e-6);
       }});
  ExpectRounded({.x = {2, 9, (4 + 2 * 2) * 16},
                 .params = {{16}, {16}},
                 .op = [](Var x, const Params& p) {
                   return ops::QkNorm(x, {.heads = 4, .kv_heads = 2}, *p[0],
                                      *p[1]);
                 }});
}

TEST(Bf16, Pointwise) {
  for (const GeluForm form : {GeluForm::kTanh, GeluForm::kErf}) {
    ExpectRounded({.x = {1, 7, 100}, .op = [form](Var x, const Params&) {
                     return ops::Gelu(x, form);
                   }});
  }
  ExpectRounded({.x = {1, 7, 66},
                 .op = [](Var x, const Params&) { return ops::SwiGlu(x); }});
  ExpectRounded({.x = {2, 5, 33}, .op = [](Var x, const Params&) {
                   return ops::Dropout(x, 0.3, HashName("here"));
                 }});
  // The gradient of x is the sum of two.
  ExpectRounded(
      {.x = {1, 7, 66},
       .op = [](Var x,
                const Params&) { return x + ops::Gelu(x, GeluForm::kErf); },
       .forward = 2,
       .backward = 2});
}

TEST(Bf16, EmbeddingLookup) {
  std::vector<int32_t> tokens(600);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(i * i % 3);
  }
  ExpectRounded({.x = {20, 30},
                 .params = {{4, 17}, {31, 17}},
                 .op =
                     [](Var x, const Params& p) {
                       return ops::EmbeddingLookup(x, *p[0], p[1]);
                     },
                 .tokens = tokens});
}

// Backward reads the rounded output too.
TEST(Bf16, Attention) {
  for (const int64_t window : {0, 20}) {
    ExpectRounded({.x = {2, 70, (4 + 2 * 2) * 16},
                   .op =
                       [window](Var x, const Params&) {
                         return ops::CausalAttention(x, 4, 2, window);
                       },
                   .backward = 2});
  }
  const RotaryAngles angles = ops::RotaryFrequencies({.dim = 16});
  ExpectRounded({.x = {1, 40, 24},
                 .params = {{(2 + 2) * 16, 24}},
                 .op =
                     [&](Var x, const Params& p) {
                       const Var qkv = ops::Linear(x, *p[0], nullptr);
                       return ops::Rotary(qkv, 2, 1, angles);
                     },
                 .forward = 2,
                 .backward = 2,
                 .weight = 1});
}

// The logits are rounded, and so is their gradient.
TEST(Bf16, HeadLoss) {
  for (const double z_loss : {0.0, 1e-3}) {
    ExpectRounded({.x = {2, 3, 16},
                   .params = {{50, 16}},
                   .op =
                       [z_loss](Var x, const Params& p) {
                         ops::HeadLoss(x, *p[0], z_loss);
                         return Var();
                       },
                   .forward = 1,
                   .backward = 4,
                   .weight = 4,
                   .loss = true,
                   .targets = {3, ops::kIgnoreIndex, 10, 0, 3, 49}});
  }
}

// A block of a model, as it is put together there.
TEST(Bf16, Chain) {
  ExpectRounded(
      {.x = {2, 40, 32},
       .params = {{32}, {32}, {96, 32}, {32, 32}, {32}, {64, 32}, {32, 64}},
       .op =
           [](Var x, const Params& p) {
             const Var qkv = ops::Linear(ops::LayerNorm(x, *p[0], *p[1], 1e-5),
                                         *p[2], nullptr);
             x = x +
                 ops::Linear(ops::CausalAttention(qkv, 2, 2), *p[3], nullptr);
             const Var up =
                 ops::Linear(ops::RmsNorm(x, *p[4], 1e-6), *p[5], nullptr);
             return x +
                    ops::Linear(ops::Gelu(up, GeluForm::kTanh), *p[6], nullptr);
           },
       .forward = 10,
       .backward = 20,
       .weight = 20});
}

struct SwishKernels {
  void (*forward)(Stream&, const GeluForwardArgs&);
};

TEST(Bf16DeathTest, AnOpWithoutKernelsSaysWhichItHas) {
  const KernelList<SwishKernels> list = {
      {DeviceKind::kCpu, DType::kF32, {meta::Nothing}},
      {DeviceKind::kMeta, DType::kF32, {meta::Nothing}}};
  const std::unique_ptr<Device> device = NewCpuDevice();
  const std::unique_ptr<Stream> stream = device->NewStream();
  HeapMemory memory(*device);
  const Tape tape({.device = device.get(), .stream = stream.get()}, memory);
  EXPECT_EQ(&ops::KernelsOf(tape, DType::kF32, list, "swish"),
            &list[0].kernels);
  EXPECT_DEATH(ops::KernelsOf(tape, DType::kBF16, list, "swish"),
               "swish has no kernels for bf16 on cpu, only f32 on cpu, f32 on "
               "meta: add them");
}

}  // namespace
}  // namespace delink::testing::bf16_test
