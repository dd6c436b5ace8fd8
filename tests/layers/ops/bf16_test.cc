// Every op in bf16 against itself in double on the same inputs: outputs and
// gradients of inputs are rounded as often as the case says, gradients of
// parameters are f32, or kept in bf16.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>
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
#include "tests/testing/numbers.h"
#include "tests/testing/visit_runner.h"

namespace delink::testing::bf16_test {
namespace {

using Params = std::vector<Param*>;
using Vector = std::vector<double>;

template <typename T>
constexpr DType kTypeOf = std::is_same_v<T, BFloat16> ? DType::kBF16
                          : std::is_same_v<T, float>  ? DType::kF32
                                                      : DType::kF64;

struct OpCase {
  Shape x;
  std::vector<Shape> params;
  std::function<Var(Var, const Params&)> op;  // undefined for a loss
  // Roundings on the longest way to an output, to the gradient of x, and to
  // what the gradient of a parameter is summed from.
  int forward = 1, backward = 1, weight = 0;
  double size = 1.0;  // of the parameters
  bool loss = false;
  std::vector<int32_t> tokens = {};  // x is these when not empty
  std::vector<int32_t> targets = {};
};

struct Outcome {
  Vector y, dx;
  std::vector<Vector> grads;
  double loss = 0;
};

// Numbers that bf16 holds.
template <typename T>
std::vector<T> Numbers(const std::string& name, int64_t count,
                       double size = 1.0) {
  const auto values = Normals<BFloat16>(name, count, size);
  std::vector<T> result;
  for (const BFloat16 value : values) result.emplace_back(float{value});
  return result;
}

template <typename T>
Vector Doubles(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

// Forward and backward once; gradients of parameters, which are kept as G,
// begin at 1.
template <typename T, typename G = Wide<T>>
Outcome Run(const OpCase& c, MemoryMode memory, bool halves = false) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  const RngKey key = KeyFromSeed(7);
  LossRecord record;
  std::vector<int64_t> samples(static_cast<size_t>(c.x[0]), 5);
  std::vector<std::vector<T>> weights;
  std::vector<std::vector<G>> grads;
  std::vector<std::unique_ptr<Param>> owned;
  Params params;
  for (const Shape& shape : c.params) {
    weights.push_back(Numbers<T>("p" + std::to_string(weights.size()),
                                 shape.elements(), c.size));
    grads.emplace_back(static_cast<size_t>(shape.elements()), G(1));
    owned.push_back(std::make_unique<Param>());
    params.push_back(owned.back().get());
  }
  const auto bind = [&] {
    for (size_t i = 0; i < owned.size(); ++i) {
      owned[i]->Bind(Tensor(weights[i].data(), kTypeOf<T>, c.params[i]),
                     Tensor(grads[i].data(), kTypeOf<G>, c.params[i]),
                     /*written=*/true);
    }
  };
  bind();
  const VisitInputs inputs = {.step_key = &key,
                              .samples = samples.data(),
                              .targets = c.targets.data(),
                              .loss = &record};
  const bool tokens = !c.tokens.empty();
  std::vector<T> x = Numbers<T>("x", tokens ? 0 : c.x.elements());
  std::vector<T> dx(x.size());
  const Tensor input =
      tokens ? Tensor(const_cast<int32_t*>(c.tokens.data()), DType::kI32, c.x)
             : Tensor(x.data(), kTypeOf<T>, c.x);
  const auto options = [&](MemoryMode mode) {
    return VisitRunner::Options{.device = device.get(),
                                .memory = mode,
                                .layer = [&](Var v) { return c.op(v, params); },
                                .x = c.x,
                                .x_dtype = input.dtype(),
                                .x_needs_grad = !tokens,
                                .loss = c.loss,
                                .bind = bind,
                                .inputs = inputs};
  };
  Shape shape;
  if (!c.loss) {
    VisitRunner probe(options(MemoryMode::kHeap));
    probe.Forward(Phase::kForward, inputs, input, Tensor());
    shape = probe.output().shape();
  }
  std::vector<T> y(static_cast<size_t>(c.loss ? 0 : shape.elements()));
  std::vector<T> dy = Numbers<T>("dy", static_cast<int64_t>(y.size()));
  const auto tensor = [&](std::vector<T>& values) {
    return c.loss ? Tensor() : Tensor(values.data(), kTypeOf<T>, shape);
  };
  VisitRunner visit(options(memory));
  record = {};
  bind();
  for (auto& grad : grads) grad.assign(grad.size(), G(1));
  visit.Forward(Phase::kRecord, inputs, input, tensor(y));
  const Tensor given = Tensor(dx.data(), kTypeOf<T>, c.x);
  if (halves) {
    visit.BackwardInput(tensor(dy), given);
    visit.BackwardWeight();
  } else {
    visit.Backward(tensor(dy), given);
  }
  Outcome outcome = {Doubles(y), Doubles(dx), {}, record.loss_sum};
  for (const auto& grad : grads) outcome.grads.push_back(Doubles(grad));
  return outcome;
}

double Error(const Vector& actual, const Vector& expected) {
  return RelativeError<double, double>(actual, expected);
}

// A rounding changes a number by at most 2^-8 of it, and a tensor, whose errors
// are independent and seldom at their worst, by less: the ops here pass errors
// on at about their size, so they add up to less than 2^-8 for each. Beside
// that, f32.
double Bound(int roundings) { return roundings * 0x1p-8 + 1e-5; }

// Where gradients are kept in bf16 each element is what it is in f32, rounded
// once (by 2^-8 of it at most), and all else has the same bits.
void ExpectNarrowGradients(const OpCase& c, const Outcome& wide) {
  const Outcome narrow = Run<BFloat16, BFloat16>(c, MemoryMode::kHeap);
  EXPECT_EQ(narrow.y, wide.y);
  EXPECT_EQ(narrow.dx, wide.dx);
  EXPECT_EQ(narrow.loss, wide.loss);
  for (size_t p = 0; p < wide.grads.size(); ++p) {
    for (size_t i = 0; i < wide.grads[p].size(); ++i) {
      const double g = wide.grads[p][i];
      EXPECT_NEAR(narrow.grads[p][i], g, 0x1p-8 * std::abs(g) + 1e-5)
          << "parameter " << p << ", element " << i;
    }
  }
  const Outcome planned = Run<BFloat16, BFloat16>(c, MemoryMode::kPlanned);
  EXPECT_EQ(planned.grads, narrow.grads);
}

// A backward in two halves has the bits of the whole.
template <typename T, typename G = Wide<T>>
void ExpectHalves(const OpCase& c) {
  const Outcome whole = Run<T, G>(c, MemoryMode::kPlanned);
  const Outcome halves = Run<T, G>(c, MemoryMode::kPlanned, /*halves=*/true);
  EXPECT_EQ(halves.dx, whole.dx);
  EXPECT_EQ(halves.grads, whole.grads);
}

void ExpectRounded(const OpCase& c) {
  const Outcome exact = Run<double>(c, MemoryMode::kHeap);
  const Outcome heap = Run<BFloat16>(c, MemoryMode::kHeap);
  EXPECT_LT(Error(heap.y, exact.y), Bound(c.forward)) << "y";
  EXPECT_LT(Error(heap.dx, exact.dx), Bound(c.backward)) << "dx";
  for (size_t i = 0; i < heap.grads.size(); ++i) {
    EXPECT_LT(Error(heap.grads[i], exact.grads[i]), Bound(c.weight))
        << "parameter " << i;
  }
  EXPECT_NEAR(heap.loss, exact.loss, Bound(c.forward) * exact.loss);
  const Outcome planned = Run<BFloat16>(c, MemoryMode::kPlanned);
  EXPECT_EQ(planned.y, heap.y);
  EXPECT_EQ(planned.dx, heap.dx);
  EXPECT_EQ(planned.grads, heap.grads);
  EXPECT_EQ(planned.loss, heap.loss);
  ExpectNarrowGradients(c, heap);
  ExpectHalves<float>(c);
  ExpectHalves<BFloat16>(c);
  ExpectHalves<BFloat16, BFloat16>(c);
}

TEST(Bf16, Linear) {
  ExpectRounded({.x = {2, 30, 48},
                 .params = {{33, 48}, {33}},
                 .op = [](Var x, const Params& p) {
                   return ops::Linear(x, *p[0], p[1]);
                 }});
  // So long a sum over tokens that bf16 would lose it.
  ExpectRounded(
      {.x = {3000, 5}, .params = {{7, 5}}, .op = [](Var x, const Params& p) {
         return ops::Linear(x, *p[0], nullptr);
       }});
}

TEST(Bf16, Norms) {
  ExpectRounded(
      {.x = {40, 65}, .params = {{65}, {65}}, .op = [](Var x, const Params& p) {
         return ops::LayerNorm(x, *p[0], *p[1], 1e-5);
       }});
  ExpectRounded(
      {.x = {40, 65}, .params = {{65}}, .op = [](Var x, const Params& p) {
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
    ExpectRounded({.x = {7, 100}, .op = [form](Var x, const Params&) {
                     return ops::Gelu(x, form);
                   }});
  }
  ExpectRounded({.x = {7, 66},
                 .op = [](Var x, const Params&) { return ops::SwiGlu(x); }});
  ExpectRounded({.x = {2, 5, 33}, .op = [](Var x, const Params&) {
                   return ops::Dropout(x, 0.3, HashName("here"));
                 }});
  // The gradient of x is the sum of two.
  ExpectRounded(
      {.x = {7, 66},
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
       .weight = 20,
       .size = 0.2});
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
