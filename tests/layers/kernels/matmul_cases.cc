#include <type_traits>

#include "absl/strings/str_format.h"
#include "tests/layers/kernels/calls.h"
#include "tests/layers/kernels/cases.h"

namespace delink::testing {
namespace {

struct Shape {
  int64_t m, n, k;
  bool transpose_a, transpose_b, bias, accumulate;
  int64_t pad;  // of every leading dimension
  bool gradient = false;
};

template <typename T, typename C>
Outputs Multiply(const Shape& p, const Kernels& kernels, Stream& stream) {
  const int64_t lda = (p.transpose_a ? p.m : p.k) + p.pad;
  const int64_t ldb = (p.transpose_b ? p.k : p.n) + p.pad;
  const int64_t ldc = p.n + p.pad;
  const auto a = Input<T>("a", lda * (p.transpose_a ? p.k : p.m));
  const auto b = Input<T>("b", ldb * (p.transpose_b ? p.n : p.k));
  const auto bias = Input<T>("bias", p.n);
  // Columns between n and ldc belong to someone else.
  auto c = Input<C>("c", ldc * p.m);
  if (!p.accumulate) {
    for (int64_t i = 0; i < p.m * p.n; ++i) {
      c[i / p.n * ldc + i % p.n] = std::numeric_limits<C>::quiet_NaN();
    }
  }
  kernels.matmul(stream, {.m = p.m,
                          .n = p.n,
                          .k = p.k,
                          .transpose_a = p.transpose_a,
                          .transpose_b = p.transpose_b,
                          .a = a.data(),
                          .lda = lda,
                          .b = b.data(),
                          .ldb = ldb,
                          .c = c.data(),
                          .ldc = ldc,
                          .bias = p.bias ? bias.data() : nullptr,
                          .accumulate = p.accumulate,
                          .c_is_gradient = p.gradient});
  return {Result("c", c, Tolerance<float>(p.k))};
}

Case MatmulCase(const Shape& p) {
  const std::string name = absl::StrFormat(
      "matmul %dx%dx%d ta%d tb%d bias%d acc%d pad%d grad%d", p.m, p.n, p.k,
      p.transpose_a, p.transpose_b, p.bias, p.accumulate, p.pad, p.gradient);
  return MakeCase(
      name, [p]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        return p.gradient ? Multiply<T, Wide<T>>(p, kernels, stream)
                          : Multiply<T, T>(p, kernels, stream);
      });
}

Case BiasGradCase(int64_t N, int64_t D, bool accumulate) {
  return MakeCase(
      absl::StrFormat("bias_grad N%d D%d acc%d", N, D, accumulate),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        const auto dy = Input<T>("dy", N * D);
        Guarded<Wide<T>> db(D);
        if (accumulate) db = Input<Wide<T>>("db", D);
        kernels.bias_grad(stream, {.N = N,
                                   .D = D,
                                   .dy = dy.data(),
                                   .db = db.data(),
                                   .accumulate = accumulate});
        return {Result("db", db, Tolerance<float>(N))};
      });
}

// Of bf16 a product may be rounded before GELU, whose derivative is at most
// 1.13, or before it is multiplied by that; and what comes of it is rounded on
// either side: each time by half a unit.
template <typename T>
double RoundedTwice() {
  return std::is_same_v<T, BFloat16> ? 3 * 1.13 * 0x1p-9 : 0;
}

Case GeluCase(int64_t m, int64_t n, int64_t k, GeluForm form, bool bias) {
  return MakeCase(
      absl::StrFormat("matmul_gelu %dx%dx%d form%d bias%d", m, n, k,
                      static_cast<int>(form), bias),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        const auto x = Input<T>("x", m * k), w = Input<T>("w", n * k, 0.5);
        const auto b = Input<T>("b", n), dy = Input<T>("dy", m * k);
        const auto w_next = Input<T>("w_next", k * n, 0.5);
        Guarded<T> pre(m * n), y(m * n), dpre(m * n);
        MatmulArgs product =
            ProductOf(m, n, k, x.data(), w.data(), y.data(),
                      /*transpose_a=*/false, /*transpose_b=*/true);
        product.bias = bias ? b.data() : nullptr;
        kernels.matmul_gelu(
            stream, {.product = product, .form = form, .pre = pre.data()});
        // Its own input, so that what is compared depends on no rounding of
        // the other call.
        const auto at = Input<T>("at", m * n, 2.0);
        kernels.matmul_gelu_backward(
            stream, {.product = ProductOf(m, n, k, dy.data(), w_next.data(),
                                          dpre.data()),
                     .form = form,
                     .pre = at.data()});
        const double error = 2 * Tolerance<float>(k) + RoundedTwice<T>();
        return {Result("pre", pre, Tolerance<float>(k)), Result("y", y, error),
                Result("dpre", dpre, error)};
      });
}

Case MatmulBiasGradCase(int64_t m, int64_t n, int64_t k, bool accumulate) {
  return MakeCase(
      absl::StrFormat("matmul_bias_grad %dx%dx%d acc%d", m, n, k, accumulate),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        const auto dy = Input<T>("dy", k * m), x = Input<T>("x", k * n);
        Guarded<Wide<T>> dw(m * n), db(m);
        if (accumulate) {
          dw = Input<Wide<T>>("dw", m * n);
          db = Input<Wide<T>>("db", m);
        }
        MatmulArgs product =
            WeightGradient(m, n, k, dy.data(), x.data(), dw.data(), accumulate);
        product.c_is_gradient = true;
        kernels.matmul_bias_grad(stream, {.product = product, .db = db.data()});
        return {Result("dw", dw, Tolerance<float>(k)),
                Result("db", db, Tolerance<float>(k))};
      });
}

}  // namespace

std::vector<Case> MatmulCases() {
  std::vector<Case> cases;
  int64_t i = 0;
  for (const int64_t m : kUglySizes) {
    for (const int64_t n : {1, 7, 16, 65}) {
      for (const int64_t k : {1, 17, 64}) {
        ++i;  // walks through all flags, whatever the sizes
        const bool gradient = i % 5 == 0;
        cases.push_back(MatmulCase({.m = m,
                                    .n = n,
                                    .k = k,
                                    .transpose_a = (i & 1) != 0,
                                    .transpose_b = (i & 2) != 0,
                                    .bias = (i & 4) != 0 && !gradient,
                                    .accumulate = (i & 8) != 0,
                                    .pad = i % 3,
                                    .gradient = gradient}));
      }
    }
  }
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const int64_t k : {0, 2500}) {
        cases.push_back(
            MatmulCase({33, 48, k, transpose_a, transpose_b, true, true, 0}));
        cases.push_back(
            MatmulCase({5, 257, k, transpose_a, transpose_b, true, false, 1}));
        cases.push_back(MatmulCase(
            {33, 48, k, transpose_a, transpose_b, false, true, 0, true}));
      }
    }
  }
  // A sum over a vocabulary, in the gradient of a head's input.
  cases.push_back(MatmulCase({8, 32, 20'000, false, false, false, false, 0}));
  for (const int64_t n : {1, 7, 16, 65}) {
    for (const int64_t k : {0, 1, 33}) {
      const auto form = (n + k) % 2 == 0 ? GeluForm::kTanh : GeluForm::kErf;
      cases.push_back(GeluCase(3, n, k, form, k % 3 == 0));
      cases.push_back(GeluCase(17, n + 8, k, GeluForm::kTanh, n != 7));
      cases.push_back(MatmulBiasGradCase(n, 9, k, k != 1));
      cases.push_back(MatmulBiasGradCase(n + 7, 16, 2 * k, n == 7));
    }
  }
  cases.push_back(GeluCase(0, 16, 8, GeluForm::kTanh, true));
  for (const int64_t N : {0, 1, 63, 64, 65, 1000}) {
    for (const int64_t D : {1, 15, 16, 17, 255, 256, 257, 600}) {
      cases.push_back(BiasGradCase(N, D, (N + D) % 2 == 0));
    }
  }
  return cases;
}

}  // namespace delink::testing
