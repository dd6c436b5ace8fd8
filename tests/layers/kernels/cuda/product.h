// Matrix products on a device's own memory, beside the reference's.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "framework/device/backend.h"
#include "framework/tensor/bfloat16.h"
#include "framework/tensor/buffer.h"
#include "layers/kernels/arguments.h"
#include "layers/kernels/ref/ref.h"
#include "tests/testing/numbers.h"

namespace delink::testing {

struct Product {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  bool bias = false, accumulate = false, gradient = false;
  int64_t pad = 0;    // of every leading dimension
  int64_t shift = 0;  // elements that operands begin behind a round address

  friend std::ostream& operator<<(std::ostream& out, const Product& p) {
    return out << p.m << " x " << p.n << " x " << p.k << ", transposed "
               << p.transpose_a << p.transpose_b << ", bias " << p.bias
               << ", accumulate " << p.accumulate << ", gradient " << p.gradient
               << ", pad " << p.pad << ", shift " << p.shift;
  }
};

// A device and a stream of it: making one takes longer than a product does.
struct DeviceStream {
  Device& device;
  Stream& stream;
};

using Multiply = std::function<void(Stream&, const MatmulArgs&)>;

// The operands' numbers, on the host.
template <typename T, typename C>
struct Operands {
  explicit Operands(const Product& p)
      : a(Numbers<T>("a", (p.transpose_a ? p.k : p.m) * Lda(p) + p.shift)),
        b(Numbers<T>("b", (p.transpose_b ? p.n : p.k) * Ldb(p) + p.shift)),
        bias(Numbers<T>("bias", p.n + p.shift)),
        c(Numbers<C>("c", p.m * (p.n + p.pad) + p.shift)) {}

  template <typename U>
  static std::vector<U> Numbers(const char* name, int64_t count) {
    std::vector<U> numbers;
    for (const float x : Normals<float>(name, count)) numbers.push_back(U(x));
    return numbers;
  }
  static int64_t Lda(const Product& p) {
    return (p.transpose_a ? p.m : p.k) + p.pad;
  }
  static int64_t Ldb(const Product& p) {
    return (p.transpose_b ? p.k : p.n) + p.pad;
  }
  static MatmulArgs Args(const Product& p, const T* a, const T* b,
                         const T* bias, C* c) {
    return {.m = p.m,
            .n = p.n,
            .k = p.k,
            .transpose_a = p.transpose_a,
            .transpose_b = p.transpose_b,
            .a = a + p.shift,
            .lda = Lda(p),
            .b = b + p.shift,
            .ldb = Ldb(p),
            .c = c + p.shift,
            .ldc = p.n + p.pad,
            .bias = p.bias ? bias + p.shift : nullptr,
            .accumulate = p.accumulate,
            .c_is_gradient = p.gradient};
  }

  std::vector<T> a, b, bias;
  std::vector<C> c;
};

// All of C as the device has it afterwards, what lies between rows included.
template <typename T, typename C>
std::vector<C> OnDevice(const DeviceStream& on, const Product& p,
                        const Multiply& multiply) {
  Operands<T, C> host(p);
  std::vector<Buffer> buffers;
  const auto put = [&](const auto& values) {
    const auto bytes =
        static_cast<int64_t>(values.size() * sizeof(values.front()));
    buffers.push_back(
        *Buffer::Allocate(on.device, std::max<int64_t>(bytes, 1)));
    on.device.CopyFromHost(on.stream, buffers.back().data(), values.data(),
                           bytes);
    return buffers.back().data();
  };
  auto* const a = static_cast<const T*>(put(host.a));
  auto* const b = static_cast<const T*>(put(host.b));
  auto* const bias = static_cast<const T*>(put(host.bias));
  auto* const c = static_cast<C*>(put(host.c));
  multiply(on.stream, Operands<T, C>::Args(p, a, b, bias, c));
  on.device.CopyToHost(on.stream, host.c.data(), c,
                       static_cast<int64_t>(host.c.size() * sizeof(C)));
  on.stream.Synchronize();
  return host.c;
}

template <typename T, typename C>
std::vector<C> ByReference(const Product& p) {
  Operands<T, C> host(p);
  const std::unique_ptr<Device> cpu = NewCpuDevice();
  ref::Matmul<T>(*cpu->NewStream(),
                 Operands<T, C>::Args(p, host.a.data(), host.b.data(),
                                      host.bias.data(), host.c.data()));
  return host.c;
}

// Of sums in f32, rounded once to C, against the reference's, which are rounded
// from double: half a unit of bf16 each way where they fall apart.
template <typename T, typename C>
void ExpectLikeReference(const DeviceStream& on, const Product& p,
                         const Multiply& multiply) {
  SCOPED_TRACE(p);
  const std::vector<C> got = OnDevice<T, C>(on, p, multiply);
  const std::vector<C> expected = ByReference<T, C>(p);
  const double rounding = std::is_same_v<C, BFloat16> ? 1.0 / 128 : 0;
  EXPECT_LE(WorstError(std::span<const C>(got), std::span<const C>(expected)),
            Tolerance<float>(p.k) + rounding);
  EXPECT_EQ(got, (OnDevice<T, C>(on, p, multiply))) << "a second time";
}

inline void ExpectLikeReference(const DeviceStream& on, DType dtype,
                                const Product& p, const Multiply& multiply) {
  if (dtype == DType::kF32) {
    ExpectLikeReference<float, float>(on, p, multiply);
  } else if (p.gradient) {
    ExpectLikeReference<BFloat16, float>(on, p, multiply);
  } else {
    ExpectLikeReference<BFloat16, BFloat16>(on, p, multiply);
  }
}

}  // namespace delink::testing
