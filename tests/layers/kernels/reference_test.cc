// The reference in double against mathematics: values worked out by hand. Every
// backward is held against central differences through the op that calls it, in
// layers/ops/gradients_test.cc; here that of queries at the end of their keys.
#include "tests/layers/kernels/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/layers/kernels/calls.h"

namespace delink::testing::reference_test {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

TEST_F(Reference, MatmulByHand) {
  // [1 2; 3 4] [5 6 7; 8 9 10] + bias, in all four layouts.
  const Vector a = {1, 2, 3, 4}, a_t = {1, 3, 2, 4};
  const Vector b = {5, 6, 7, 8, 9, 10}, b_t = {5, 8, 6, 9, 7, 10};
  const Vector bias = {100, 200, 300};
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      Vector c(6, 1000.0);
      MatmulArgs args = ProductOf(2, 3, 2, ta ? a_t.data() : a.data(),
                                  tb ? b_t.data() : b.data(), c.data(), ta, tb);
      args.bias = bias.data();
      kernels_.matmul(stream_, args);
      EXPECT_THAT(c, ElementsAre(121, 224, 327, 147, 254, 361));
      args.bias = nullptr;
      args.accumulate = true;
      kernels_.matmul(stream_, args);
      EXPECT_THAT(c, ElementsAre(142, 248, 354, 194, 308, 422));
    }
  }
}

TEST_F(Reference, BiasGradSumsColumns) {
  const Vector dy = {1, 2, 3, 4, 5, 6};
  Vector db = {100, 100};
  kernels_.bias_grad(stream_, {3, 2, dy.data(), db.data(), true});
  EXPECT_THAT(db, ElementsAre(109, 112));
  kernels_.bias_grad(stream_, {3, 2, dy.data(), db.data(), false});
  EXPECT_THAT(db, ElementsAre(9, 12));
}

TEST_F(Reference, LayerNorm) {
  // (x - 2) / sqrt(1 + 3), with mean 2 and variance 1.
  Vector x = {1, 3, 3, 1}, w = {1, 1, 10, 1}, b = {0, 0, 0, 5};
  Vector y(4), mean(1), rstd(1);
  kernels_.layer_norm_forward(stream_, {1, 4, 3.0, x.data(), w.data(), b.data(),
                                        y.data(), mean.data(), rstd.data()});
  EXPECT_THAT(y, ElementsAre(-0.5, 0.5, 5.0, 4.5));
  EXPECT_THAT(mean, ElementsAre(2.0));
  EXPECT_THAT(rstd, ElementsAre(0.5));
}

TEST_F(Reference, RmsNorm) {
  // x / sqrt((9 + 16) / 2 + 12.5) = x / 5.
  const Vector three_four = {3, 4}, ones = {1, 10};
  Vector out(2);
  kernels_.rms_norm_forward(stream_, {1, 2, 12.5, three_four.data(),
                                      ones.data(), out.data(), nullptr});
  EXPECT_THAT(out, ElementsAre(DoubleNear(0.6, 1e-15), DoubleNear(8, 1e-14)));
}

TEST_F(Reference, Gelu) {
  // Values from tables of the normal distribution and of tanh.
  const Vector at = {-1, 0, 1, 2};
  Vector out(4);
  kernels_.gelu_forward(stream_, {4, GeluForm::kErf, at.data(), out.data()});
  EXPECT_THAT(out,
              Pointwise(DoubleNear(1e-10),
                        Vector{-0.1586552539, 0, 0.8413447461, 1.9544997361}));
  kernels_.gelu_forward(stream_, {4, GeluForm::kTanh, at.data(), out.data()});
  EXPECT_THAT(out, Pointwise(DoubleNear(1e-6),
                             Vector{-0.158808, 0, 0.841192, 1.954598}));
}

TEST_F(Reference, AddAndAccumulate) {
  const Vector a = {1, 2}, b = {10, 20};
  Vector y(2);
  kernels_.add(stream_, {2, a.data(), b.data(), y.data()});
  EXPECT_THAT(y, ElementsAre(11, 22));
  kernels_.accumulate(stream_, {2, a.data(), y.data()});
  EXPECT_THAT(y, ElementsAre(12, 24));
}

TEST_F(Reference, DropoutKeepsTheRightShareAndScalesIt) {
  const int64_t count = 100'000;
  const Vector x(count, 3.0);
  Vector y(count);
  const RngKey key = KeyFromSeed(7);
  const int64_t sample = 5;
  kernels_.dropout(stream_, {.B = 1,
                             .T = 100,
                             .D = count / 100,
                             .rate = 0.25,
                             .step_key = &key,
                             .name_hash = 3,
                             .sample = &sample,
                             .x = x.data(),
                             .y = y.data()});
  const auto kept = std::count(y.begin(), y.end(), 4.0);
  EXPECT_EQ(kept + std::count(y.begin(), y.end(), 0.0), count);
  // Six standard deviations of a binomial.
  EXPECT_NEAR(kept, 75'000, 6 * std::sqrt(count * 0.25 * 0.75));
}

TEST_F(Reference, Embedding) {
  const std::vector<int32_t> tokens = {2, 0, 2, 1, 2, 2};
  const Vector w = Normals<double>("w", 4 * 3), p = Normals<double>("p", 6 * 3);
  Vector y(6 * 3);
  kernels_.embedding_forward(stream_, {2, 3, 3, 4, 1, nullptr, tokens.data(),
                                       w.data(), p.data(), y.data()});
  EXPECT_EQ(y[3], w[0] + p[2 * 3]);          // token 0 at position 1 + 1
  EXPECT_EQ(y[5 * 3], w[2 * 3] + p[3 * 3]);  // token 2 at position 1 + 2
}

// Grouped queries and a cache of earlier keys: H = 4, Hkv = 2, Tq = 3, Tk = 5.
class ReferenceAttention : public Reference,
                           public ::testing::WithParamInterface<int64_t> {
 protected:
  static constexpr int64_t kB = 2, kH = 4, kHkv = 2, kDh = 3, kTq = 3, kTk = 5;

  int64_t window_ = GetParam();

  double Loss() {
    kernels_.attention_forward(stream_, Forward());
    return Dot(o_, d_o_);
  }
  AttentionForwardArgs Forward() {
    return {.B = kB,
            .H = kH,
            .Hkv = kHkv,
            .Dh = kDh,
            .Tq = kTq,
            .Tk = kTk,
            .scale = 0.7,
            .window = window_,
            .q = q_.data(),
            .q_strides = {kTq * kH * kDh, kH * kDh},
            .k = k_.data(),
            .v = v_.data(),
            .kv_strides = {kTk * kHkv * kDh, kHkv * kDh},
            .o = o_.data(),
            .o_strides = {kTq * kH * kDh, kH * kDh},
            .lse = lse_.data()};
  }

  Vector q_ = Normals<double>("q", kB* kTq* kH* kDh);
  Vector k_ = Normals<double>("k", kB* kTk* kHkv* kDh);
  Vector v_ = Normals<double>("v", kB* kTk* kHkv* kDh);
  Vector d_o_ = Normals<double>("do", kB* kTq* kH* kDh);
  Vector o_ = Vector(kB * kTq * kH * kDh), lse_ = Vector(kB * kH * kTq);
};

TEST_P(ReferenceAttention, IsTheFormula) {
  Loss();
  for (int64_t b = 0; b < kB; ++b) {
    for (int64_t h = 0; h < kH; ++h) {
      for (int64_t i = 0; i < kTq; ++i) {
        const double* q = &q_[((b * kTq + i) * kH + h) * kDh];
        double sum = 0.0, value[kDh] = {};
        for (int64_t j = 0; j <= i + 2; ++j) {
          if (window_ > 0 && j + window_ <= i + 2) continue;
          const int64_t at = ((b * kTk + j) * kHkv + h / 2) * kDh;
          double score = 0.0;
          for (int64_t d = 0; d < kDh; ++d) score += 0.7 * q[d] * k_[at + d];
          sum += std::exp(score);
          for (int64_t d = 0; d < kDh; ++d) {
            value[d] += std::exp(score) * v_[at + d];
          }
        }
        EXPECT_NEAR(lse_[(b * kH + h) * kTq + i], std::log(sum), 1e-12);
        for (int64_t d = 0; d < kDh; ++d) {
          EXPECT_NEAR(o_[((b * kTq + i) * kH + h) * kDh + d], value[d] / sum,
                      1e-12);
        }
      }
    }
  }
}

TEST_P(ReferenceAttention, Gradients) {
  Loss();
  Vector dq(q_.size()), dk(k_.size()), dv(v_.size()), delta(lse_.size());
  AttentionBackwardArgs args = BackwardOf(Forward());
  args.d_o = d_o_.data();
  args.dq = dq.data();
  args.dk = dk.data();
  args.dv = dv.data();
  args.delta = delta.data();
  kernels_.attention_backward(stream_, args);
  ExpectGradient(q_, dq, [this] { return Loss(); });
  ExpectGradient(k_, dk, [this] { return Loss(); });
  ExpectGradient(v_, dv, [this] { return Loss(); });
}

// 5 keys: a window of all of them is none.
INSTANTIATE_TEST_SUITE_P(Window, ReferenceAttention,
                         ::testing::Values(0, 1, 2, 3, 5, 9));

}  // namespace
}  // namespace delink::testing::reference_test
