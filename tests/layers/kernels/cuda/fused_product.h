// Products with an epilogue, on a device's own memory, beside the reference's.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "framework/tensor/bfloat16.h"
#include "layers/kernels/cuda/cublaslt/products.h"
#include "layers/kernels/ref/ref.h"
#include "tests/layers/kernels/cuda/product.h"
#include "tests/testing/device_array.h"
#include "tests/testing/numbers.h"

namespace delink::testing {

// [m, k] times [k, n], each as the op has it that needs the epilogue.
struct Beside {
  enum Kind { kGelu, kGeluBackward, kBiasGrad } kind;
  int64_t m, n, k;
  bool bias = false, accumulate = false;
  GeluForm form = GeluForm::kTanh;
};

inline std::vector<Beside> FusedForms(int64_t n) {
  return {{Beside::kGelu, 5, n, 7, true},
          {Beside::kGelu, 3, n, 16},
          {Beside::kGeluBackward, 5, n, 7},
          {Beside::kBiasGrad, 11, n, 6},
          {Beside::kBiasGrad, 5, n, 33, false, true}};
}

// C, and what is beside it: pre or db.
template <typename T, typename C>
struct FusedOperands {
  explicit FusedOperands(const Beside& p)
      : a(Operands<T, C>::template Numbers<T>("a", p.m * p.k)),
        b(Operands<T, C>::template Numbers<T>("b", p.k * p.n)),
        bias(Operands<T, C>::template Numbers<T>("bias", p.n)),
        c(Operands<T, C>::template Numbers<C>("c", p.m * p.n)),
        beside(Operands<T, C>::template Numbers<C>(
            "beside", p.kind == Beside::kBiasGrad ? p.m : p.m * p.n)) {}
  std::vector<T> a, b, bias;
  std::vector<C> c, beside;
};

// Calls run(args) with those of the kernel that p is a call of.
template <typename Run>
auto WithArgs(const Beside& p, const void* a, const void* b, const void* bias,
              void* c, void* beside, Run run) {
  MatmulArgs product = {.m = p.m, .n = p.n, .k = p.k, .a = a, .b = b, .c = c};
  product.ldc = p.n;
  product.accumulate = p.accumulate;
  product.bias = p.bias ? bias : nullptr;
  product.transpose_a = p.kind == Beside::kBiasGrad;
  product.transpose_b = p.kind == Beside::kGelu;
  product.c_is_gradient = p.kind == Beside::kBiasGrad;
  product.lda = product.transpose_a ? p.m : p.k;
  product.ldb = product.transpose_b ? p.k : p.n;
  switch (p.kind) {
    case Beside::kGelu:
      return run(MatmulGeluArgs{product, p.form, beside});
    case Beside::kGeluBackward:
      return run(MatmulGeluBackwardArgs{product, p.form, beside});
    case Beside::kBiasGrad:
      return run(MatmulBiasGradArgs{product, beside});
  }
  return run(MatmulBiasGradArgs{product, beside});
}

template <typename T>
void ByReference(Stream& stream, const MatmulGeluArgs& args) {
  ref::MatmulGelu<T>(stream, args);
}
template <typename T>
void ByReference(Stream& stream, const MatmulGeluBackwardArgs& args) {
  ref::MatmulGeluBackward<T>(stream, args);
}
template <typename T>
void ByReference(Stream& stream, const MatmulBiasGradArgs& args) {
  ref::MatmulBiasGrad<T>(stream, args);
}

// Whether there was an epilogue for it; then the results are compared.
template <typename T, typename C>
bool ExpectLikeReference(const DeviceStream& on, const Beside& p,
                         cuda::Products& products) {
  FusedOperands<T, C> expected(p);
  const FusedOperands<T, C> host(p);
  const std::unique_ptr<Device> cpu = NewCpuDevice();
  WithArgs(p, expected.a.data(), expected.b.data(), expected.bias.data(),
           expected.c.data(), expected.beside.data(),
           [&](const auto& args) { ByReference<T>(*cpu->NewStream(), args); });
  const auto put = [&](const auto& values) {
    using Value = typename std::decay_t<decltype(values)>::value_type;
    return std::make_unique<DeviceArray<Value>>(on.device, values);
  };
  auto a = put(host.a), b = put(host.b), bias = put(host.bias);
  auto c = put(host.c), beside = put(host.beside);
  const DType dtype = std::is_same_v<T, float> ? DType::kF32 : DType::kBF16;
  const bool fused =
      WithArgs(p, a->data(), b->data(), bias->data(), c->data(), beside->data(),
               [&](const auto& args) {
                 return products.Multiply(on.stream, args, dtype);
               });
  if (!fused) return false;
  const double rounding = std::is_same_v<C, BFloat16> ? 1.0 / 128 : 0;
  const double error = 2 * Tolerance<float>(p.k) + rounding;
  const std::vector<C> got = c->Values(on.stream),
                       got_beside = beside->Values(on.stream);
  EXPECT_LE(WorstError(std::span<const C>(got), std::span<const C>(expected.c)),
            error);
  EXPECT_LE(WorstError(std::span<const C>(got_beside),
                       std::span<const C>(expected.beside)),
            error);
  return true;
}

inline bool ExpectLikeReference(const DeviceStream& on, DType dtype,
                                const Beside& p, cuda::Products& products) {
  if (dtype == DType::kF32) {
    return ExpectLikeReference<float, float>(on, p, products);
  }
  return p.kind == Beside::kBiasGrad
             ? ExpectLikeReference<BFloat16, float>(on, p, products)
             : ExpectLikeReference<BFloat16, BFloat16>(on, p, products);
}

}  // namespace delink::testing
