// The reference of what llama-like models add, against mathematics; but for
// rotary positions and z-losses, which ops hold against it (rotary_test.cc and
// head_loss_test.cc in layers/ops).
#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>

#include "tests/layers/kernels/reference.h"

namespace delink::testing::reference_gated_test {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

TEST_F(Reference, SwiGlu) {
  // silu(0) = 0; silu(ln 3) = ln 3 * 3/4; silu(-ln 3) = -ln 3 / 4.
  const double ln3 = std::log(3.0);
  const Vector at = {0, ln3, -ln3, 5, 2, 8};
  Vector out(3);
  kernels_.swiglu_forward(stream_, {1, 3, at.data(), out.data()});
  EXPECT_THAT(out,
              Pointwise(DoubleNear(1e-14), Vector{0, 1.5 * ln3, -2 * ln3}));
}

TEST_F(Reference, QkNormIsRmsNormOfEachHead) {
  const int64_t N = 2, H = 2, Hkv = 1, Dh = 3, heads = H + 2 * Hkv;
  const Vector x = Normals<double>("x", N * heads * Dh);
  const Vector q_w = Normals<double>("q_w", Dh);
  const Vector k_w = Normals<double>("k_w", Dh);
  Vector y(x.size()), rstd(N * (H + Hkv));
  kernels_.qk_norm_forward(stream_, {N, H, Hkv, Dh, 1e-3, x.data(), q_w.data(),
                                     k_w.data(), y.data(), rstd.data()});
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
}

}  // namespace
}  // namespace delink::testing::reference_gated_test
