// The reference of what llama-like models add, against mathematics.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>

#include "tests/layers/kernels/reference.h"

namespace delink::testing::reference_gated_test {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

TEST_F(Reference, SwiGluAndItsGradients) {
  // silu(0) = 0; silu(ln 3) = ln 3 * 3/4; silu(-ln 3) = -ln 3 / 4.
  const double ln3 = std::log(3.0);
  const Vector at = {0, ln3, -ln3, 5, 2, 8};
  Vector out(3);
  kernels_.swiglu_forward(stream_, {1, 3, at.data(), out.data()});
  EXPECT_THAT(out,
              Pointwise(DoubleNear(1e-14), Vector{0, 1.5 * ln3, -2 * ln3}));

  const int64_t N = 3, F = 5;
  Vector x = Normals<double>("x", N * 2 * F, 2.0), y(N * F), dx(N * 2 * F);
  const Vector dy = Normals<double>("dy", N * F);
  const auto loss = [&] {
    kernels_.swiglu_forward(stream_, {N, F, x.data(), y.data()});
    return Dot(y, dy);
  };
  kernels_.swiglu_backward(stream_, {N, F, dy.data(), x.data(), dx.data()});
  ExpectGradient(x, dx, loss);
}

class ReferenceRotary : public Reference {
 protected:
  // One token of one head at `position`, the head being all of its row.
  Vector Turned(Vector x, const RotaryAngles& angles, int64_t position,
                bool inverse = false) {
    const auto Dh = static_cast<int64_t>(x.size());
    kernels_.rotary(stream_, {.B = 1,
                              .T = 1,
                              .Dh = Dh,
                              .heads = 1,
                              .row = Dh,
                              .first_position = position,
                              .angles = &angles,
                              .inverse = inverse,
                              .x = x.data()});
    return x;
  }
};

TEST_F(ReferenceRotary, ByHand) {
  // A quarter and half a turn at position 1; what is past the pairs stays.
  RotaryAngles angles = {.pairing = RotaryPairing::kHalf,
                         .pairs = 2,
                         .inverse_frequency = {M_PI / 2, M_PI}};
  const Vector x = {1, 2, 3, 4, 5};
  const auto near = Pointwise(DoubleNear(1e-14), Vector{-3, -2, 1, -4, 5});
  EXPECT_THAT(Turned(x, angles, 1), near);
  angles.pairing = RotaryPairing::kInterleaved;
  EXPECT_THAT(Turned(x, angles, 1),
              Pointwise(DoubleNear(1e-14), Vector{-2, 1, -3, -4, 5}));
  EXPECT_EQ(Turned(x, angles, 0), x);
}

TEST_F(ReferenceRotary, ScoresDependOnDistanceAlone) {
  for (const RotaryPairing pairing :
       {RotaryPairing::kHalf, RotaryPairing::kInterleaved}) {
    const RotaryAngles angles = {
        .pairing = pairing, .pairs = 3, .inverse_frequency = {1.0, 0.1, 0.013}};
    const Vector q = Normals<double>("q", 6), k = Normals<double>("k", 6);
    const double near = Dot(Turned(q, angles, 12), Turned(k, angles, 5));
    const double far = Dot(Turned(q, angles, 1007), Turned(k, angles, 1000));
    EXPECT_NEAR(near, far, 1e-11);
    EXPECT_NEAR(near, Dot(Turned(q, angles, 7), k), 1e-11);
    EXPECT_GT(std::fabs(near - Dot(q, k)), 1e-3);
    // The inverse is the transpose: (R q) . k = q . (R^-1 k).
    EXPECT_NEAR(near, Dot(q, Turned(k, angles, 7, /*inverse=*/true)), 1e-11);
  }
}

TEST_F(ReferenceRotary, TokensAndHeadsEachTurnByTheirPosition) {
  const RotaryAngles angles = {.pairing = RotaryPairing::kHalf,
                               .pairs = 2,
                               .inverse_frequency = {0.7, 0.2}};
  constexpr int64_t kB = 2, kT = 3, kRow = 3 * 4;  // heads: two turn
  const Vector x = Normals<double>("x", kB * kT * kRow);
  Vector y = x;
  kernels_.rotary(stream_, {.B = kB,
                            .T = kT,
                            .Dh = 4,
                            .heads = 2,
                            .row = kRow,
                            .first_position = 10,
                            .angles = &angles,
                            .x = y.data()});
  for (int64_t n = 0; n < kB * kT; ++n) {
    for (int64_t h = 0; h < 3; ++h) {
      const auto begin = x.begin() + n * kRow + h * 4;
      Vector expected(begin, begin + 4);
      if (h < 2) expected = Turned(expected, angles, 10 + n % kT);
      const auto at = y.begin() + n * kRow + h * 4;
      EXPECT_EQ(Vector(at, at + 4), expected);
    }
  }
}

TEST_F(Reference, QkNormIsRmsNormOfEachHead) {
  const int64_t N = 2, H = 2, Hkv = 1, Dh = 3, heads = H + 2 * Hkv;
  Vector x = Normals<double>("x", N * heads * Dh);
  Vector q_w = Normals<double>("q_w", Dh), k_w = Normals<double>("k_w", Dh);
  const Vector dy = Normals<double>("dy", N * heads * Dh);
  Vector y(x.size()), rstd(N * (H + Hkv));
  const auto loss = [&] {
    kernels_.qk_norm_forward(
        stream_, {N, H, Hkv, Dh, 1e-3, x.data(), q_w.data(), k_w.data(),
                  y.data(), rstd.data()});
    return Dot(y, dy);
  };
  loss();
  for (int64_t n = 0; n < N * heads; ++n) {
    const double* in = &x[n * Dh];
    const double square = in[0] * in[0] + in[1] * in[1] + in[2] * in[2];
    const int64_t h = n % heads;
    for (int64_t d = 0; d < Dh; ++d) {
      const double w = h < H ? q_w[d] : k_w[d];
      const double expected =
          h < H + Hkv ? in[d] / std::sqrt(square / 3 + 1e-3) * w : in[d];
      EXPECT_NEAR(y[n * Dh + d], expected, 1e-14);
    }
  }
  Vector dx(x.size()), dq_w(Dh), dk_w(Dh);
  kernels_.qk_norm_backward_input(
      stream_, {N, H, Hkv, Dh, dy.data(), x.data(), q_w.data(), k_w.data(),
                rstd.data(), dx.data()});
  kernels_.qk_norm_backward_weight(
      stream_, {N, Dh, heads, H + Hkv, 0, H, dy.data(), x.data(), rstd.data(),
                dq_w.data()});
  kernels_.qk_norm_backward_weight(
      stream_, {N, Dh, heads, H + Hkv, H, Hkv, dy.data(), x.data(), rstd.data(),
                dk_w.data()});
  ExpectGradient(x, dx, loss);
  ExpectGradient(q_w, dq_w, loss);
  ExpectGradient(k_w, dk_w, loss);
}

TEST_F(Reference, ZLossAndItsGradients) {
  const int64_t N = 3, V = 4;
  Vector x = Normals<double>("x", N * V), row_loss(N), row_z(N);
  const std::vector<int32_t> targets = {3, -1, 0};
  int64_t count = 0;
  double loss_sum = 0, z_sum = 0;
  CrossEntropyArgs args = {.N = N,
                           .V = V,
                           .ld = V,
                           .logits = x.data(),
                           .targets = targets.data(),
                           .ignore_index = -1,
                           .want_grad = false,
                           .row_loss = row_loss.data(),
                           .loss_sum = &loss_sum,
                           .count = &count};
  kernels_.cross_entropy(stream_, args);
  const double plain = loss_sum;
  args.z_weight = 0.3;
  args.row_z = row_z.data();
  args.z_sum = &z_sum;
  const auto loss = [&] {
    loss_sum = z_sum = 0;
    kernels_.cross_entropy(stream_, args);
    return loss_sum + z_sum;
  };
  loss();
  EXPECT_EQ(loss_sum, plain);  // cross-entropy alone
  double expected = 0;
  for (const int64_t n : {0, 2}) {
    double sum = 0;
    for (int64_t v = 0; v < V; ++v) sum += std::exp(x[n * V + v]);
    EXPECT_NEAR(row_z[n], 0.3 * std::log(sum) * std::log(sum), 1e-14);
    expected += row_z[n];
  }
  EXPECT_EQ(row_z[1], 0);
  EXPECT_NEAR(z_sum, expected, 1e-14);
  Vector dx = x;
  args.logits = dx.data();
  args.want_grad = true;
  kernels_.cross_entropy(stream_, args);
  args.logits = x.data();
  args.want_grad = false;
  ExpectGradient(x, dx, loss);
}

}  // namespace
}  // namespace delink::testing::reference_gated_test
