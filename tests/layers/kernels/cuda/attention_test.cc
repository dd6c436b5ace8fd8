// What our own attention on CUDA promises beside the numbers, which the kernel
// test holds against the reference: rows at any address, of any layout, and
// statistics that nobody wants make no difference. On the emulated device
// alone: on a real one cuDNN takes some of these calls and not others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "framework/device/backend.h"
#include "framework/tensor/bfloat16.h"
#include "layers/kernels/cuda/cuda.h"
#include "tests/layers/kernels/calls.h"
#include "tests/testing/numbers.h"

namespace delink::testing::attention_test {
namespace {

template <typename T>
class CudaAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = NewCudaDevice(0);
    if (!device.ok()) GTEST_SKIP() << device.status();
    device_ = *std::move(device);
    stream_ = device_->NewStream();
  }
  void TearDown() override {
    for (const auto& [address, bytes] : taken_) device_->Free(address, bytes);
  }

  // `values` on the device, `shift` elements behind an aligned address.
  T* ToDevice(const std::vector<T>& values, int64_t shift) {
    T* const to = Take<T>(static_cast<int64_t>(values.size()) + shift) + shift;
    device_->CopyFromHost(*stream_, to, values.data(),
                          static_cast<int64_t>(values.size() * sizeof(T)));
    stream_->Synchronize();
    return to;
  }
  template <typename U>
  U* Take(int64_t count) {
    const int64_t bytes = AlignUp(count * static_cast<int64_t>(sizeof(U)));
    void* const address = *device_->Allocate(bytes, "a test");
    taken_.emplace_back(address, bytes);
    return static_cast<U*>(address);
  }
  template <typename U>
  std::vector<U> ToHost(const U* from, int64_t count) {
    std::vector<U> values(count);
    device_->CopyToHost(*stream_, values.data(), from,
                        count * static_cast<int64_t>(sizeof(U)));
    stream_->Synchronize();
    return values;
  }

  static constexpr int64_t B = 2, H = 4, Hkv = 2, Dh = 24, Tq = 66;

  struct Results {
    std::vector<T> o, d_qkv;
    std::vector<float> lse;
    bool operator==(const Results& other) const {
      const auto same = [](const auto& a, const auto& b) {
        return a.size() == b.size() &&
               std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
      };
      return same(o, other.o) && same(d_qkv, other.d_qkv) &&
             same(lse, other.lse);
    }
  };

  // Forward and backward; tokens are `pad` elements further apart than they
  // must be, and all tensors begin `shift` elements behind an aligned address.
  Results Run(int64_t shift, int64_t pad, bool want_lse) {
    const int64_t heads = (H + 2 * Hkv) * Dh, row = heads + pad;
    const std::vector<T> given = Normals<T>("qkv", B * Tq * heads);
    std::vector<T> spread(B * Tq * row, T(std::nanf("")));
    for (int64_t t = 0; t < B * Tq; ++t) {
      std::copy_n(given.begin() + t * heads, heads, spread.begin() + t * row);
    }
    const T* const qkv = ToDevice(spread, shift);
    T* const o = ToDevice(std::vector<T>(B * Tq * H * Dh), shift);
    T* const d_qkv = ToDevice(std::vector<T>(B * Tq * row), shift);
    const T* const d_o = ToDevice(Normals<T>("do", B * Tq * H * Dh), shift);
    float* const lse = Take<float>(B * H * Tq);
    const HeadStrides strides = {Tq * row, row};
    const HeadStrides o_strides = {Tq * H * Dh, H * Dh};
    AttentionForwardArgs forward = {.B = B,
                                    .H = H,
                                    .Hkv = Hkv,
                                    .Dh = Dh,
                                    .Tq = Tq,
                                    .Tk = Tq,
                                    .scale = 0.2,
                                    .window = 40,
                                    .q = qkv,
                                    .q_strides = strides,
                                    .k = qkv + H * Dh,
                                    .v = qkv + (H + Hkv) * Dh,
                                    .kv_strides = strides,
                                    .o = o,
                                    .o_strides = o_strides,
                                    .lse = lse};
    cuda::AttentionForward<T>(*stream_, forward);
    if (!want_lse) {
      forward.lse = nullptr;
      device_->FillZero(*stream_, o, B * Tq * H * Dh * sizeof(T));
      cuda::AttentionForward<T>(*stream_, forward);
    }
    AttentionBackwardArgs backward = BackwardOf(forward);
    backward.d_o = d_o;
    backward.lse = lse;
    backward.dq = d_qkv;
    backward.dk = d_qkv + H * Dh;
    backward.dv = d_qkv + (H + Hkv) * Dh;
    backward.delta = Take<float>(B * H * Tq);
    cuda::AttentionBackward<T>(*stream_, backward);
    const std::vector<T> wide = ToHost(d_qkv, B * Tq * row);
    Results results = {.o = ToHost(o, B * Tq * H * Dh),
                       .lse = ToHost(lse, B * H * Tq)};
    for (int64_t t = 0; t < B * Tq; ++t) {
      const auto from = wide.begin() + t * row;
      results.d_qkv.insert(results.d_qkv.end(), from, from + heads);
      // Between the tokens nothing is written.
      for (int64_t i = heads; i < row; ++i) {
        EXPECT_EQ(static_cast<float>(from[i]), 0.0F);
      }
    }
    return results;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::pair<void*, int64_t>> taken_;
};
using Types = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaAttention, Types);

TYPED_TEST(CudaAttention, AddressesAndLayoutsChangeNoBit) {
  const auto aligned = this->Run(0, 0, true);
  EXPECT_EQ(aligned, this->Run(0, 8, true)) << "packs";
  EXPECT_EQ(aligned, this->Run(1, 0, true)) << "no address is aligned";
  EXPECT_EQ(aligned, this->Run(0, 3, true)) << "few addresses are aligned";
}

TYPED_TEST(CudaAttention, StatisticsAreOptional) {
  EXPECT_EQ(this->Run(0, 0, true), this->Run(0, 0, false));
}

TYPED_TEST(CudaAttention, NothingToDoIsNothing) {
  using T = TypeParam;
  cuda::AttentionForward<T>(*this->stream_, {.Dh = 8, .scale = 1.0});
  cuda::AttentionBackward<T>(*this->stream_, {.Dh = 8, .scale = 1.0});
  cuda::AttentionForward<T>(
      *this->stream_,
      {.B = 1, .H = 2, .Hkv = 1, .Dh = 8, .Tq = 0, .Tk = 0, .scale = 1.0});
  // Keys that no query sees have no gradient, and are told so.
  const std::vector<T> some = Normals<T>("k", 3 * 8);
  T* const dk = this->ToDevice(some, 0);
  T* const dv = this->ToDevice(some, 0);
  cuda::AttentionBackward<T>(*this->stream_, {.B = 1,
                                              .H = 1,
                                              .Hkv = 1,
                                              .Dh = 8,
                                              .Tq = 0,
                                              .Tk = 3,
                                              .scale = 1.0,
                                              .k = this->ToDevice(some, 0),
                                              .v = this->ToDevice(some, 0),
                                              .kv_strides = {24, 8},
                                              .dk = dk,
                                              .dv = dv});
  for (const T* gradient : {dk, dv}) {
    for (const T x : this->ToHost(gradient, 24)) {
      EXPECT_EQ(static_cast<float>(x), 0.0F);
    }
  }
}

}  // namespace
}  // namespace delink::testing::attention_test
