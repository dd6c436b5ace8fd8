// Attention over rows of several documents, bit for bit: what a document makes
// is its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "framework/tensor/bfloat16.h"
#include "layers/kernels/find_kernels.h"
#include "tests/layers/kernels/calls.h"
#include "tests/testing/documents.h"
#include "tests/testing/numbers.h"

namespace delink::testing::masked_attention_test {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 10;
constexpr int64_t kRow = (kHeads + 2 * kKvHeads) * kHeadDim;
constexpr int64_t kOut = kHeads * kHeadDim;

template <typename T>
class Documents : public ::testing::Test {
 protected:
  struct Result {
    std::vector<T> o, d_qkv;
  };

  // Of qkv [tokens, kRow] and d_o [tokens, kOut].
  Result Attend(const T* qkv, const T* d_o, int64_t tokens,
                const int32_t* positions) {
    Result result{std::vector<T>(tokens * kOut), std::vector<T>(tokens * kRow)};
    std::vector<float> lse(kHeads * tokens), delta(kHeads * tokens);
    const AttentionForwardArgs f = {.B = 1,
                                    .H = kHeads,
                                    .Hkv = kKvHeads,
                                    .Dh = kHeadDim,
                                    .Tq = tokens,
                                    .Tk = tokens,
                                    .scale = 0.3,
                                    .positions = positions,
                                    .q = qkv,
                                    .q_strides = {tokens * kRow, kRow},
                                    .k = qkv + kOut,
                                    .v = qkv + kOut + kKvHeads * kHeadDim,
                                    .kv_strides = {tokens * kRow, kRow},
                                    .o = result.o.data(),
                                    .o_strides = {tokens * kOut, kOut},
                                    .lse = lse.data()};
    testing::Attend(kernels_, stream_, f, 1);
    T* const d_qkv = result.d_qkv.data();
    AttentionBackwardArgs b = BackwardOf(f);
    b.d_o = d_o;
    b.dq = d_qkv;
    b.dk = d_qkv + kOut;
    b.dv = d_qkv + kOut + kKvHeads * kHeadDim;
    b.delta = delta.data();
    testing::Attend(kernels_, stream_, b, 1);
    return result;
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  std::unique_ptr<Stream> owned_ = device_->NewStream();
  Stream& stream_ = *owned_;
  const Kernels& kernels_ = *FindKernels(
      DeviceKind::kCpu, std::is_same_v<T, float> ? DType::kF32 : DType::kBF16);
};
using Types = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(Documents, Types);

template <typename T>
std::vector<T> Part(const std::vector<T>& values, int64_t first, int64_t count,
                    int64_t width) {
  return {values.begin() + first * width,
          values.begin() + (first + count) * width};
}

// Where a tile of queries and one of keys hold the whole document, its sums are
// those of the document alone, in the same order.
TYPED_TEST(Documents, ThatFitATileHaveTheBitsThatTheyHaveAlone) {
  const std::vector<int64_t> lengths = {13, 1, 24, 26};
  const auto qkv = Normals<TypeParam>("qkv", 64 * kRow);
  const auto d_o = Normals<TypeParam>("do", 64 * kOut);
  const std::vector<int32_t> positions = Positions(1, 64, lengths);
  const auto together =
      this->Attend(qkv.data(), d_o.data(), 64, positions.data());
  int64_t first = 0;
  for (const int64_t n : lengths) {
    SCOPED_TRACE(n);
    const auto alone = this->Attend(qkv.data() + first * kRow,
                                    d_o.data() + first * kOut, n, nullptr);
    EXPECT_EQ(alone.o, Part(together.o, first, n, kOut));
    EXPECT_EQ(alone.d_qkv, Part(together.d_qkv, first, n, kRow));
    first += n;
  }
}

// All other documents are others: nothing changes, in tiles that they share
// with this one, in forward or backward.
TYPED_TEST(Documents, ChangeNothingInOthers) {
  constexpr int64_t kTokens = 210;
  const std::vector<int64_t> lengths = {40, 1, 64, 9, 70, 3, 23};
  const std::vector<int32_t> positions = Positions(1, kTokens, lengths);
  const auto qkv = Normals<TypeParam>("qkv", kTokens * kRow);
  const auto d_o = Normals<TypeParam>("do", kTokens * kOut);
  const auto before =
      this->Attend(qkv.data(), d_o.data(), kTokens, positions.data());
  int64_t first = 0;
  for (const int64_t n : lengths) {
    SCOPED_TRACE(first);
    auto others = Normals<TypeParam>("other qkv", kTokens * kRow);
    auto other_d_o = Normals<TypeParam>("other do", kTokens * kOut);
    std::copy_n(qkv.begin() + first * kRow, n * kRow,
                others.begin() + first * kRow);
    std::copy_n(d_o.begin() + first * kOut, n * kOut,
                other_d_o.begin() + first * kOut);
    const auto after = this->Attend(others.data(), other_d_o.data(), kTokens,
                                    positions.data());
    EXPECT_EQ(Part(after.o, first, n, kOut), Part(before.o, first, n, kOut));
    EXPECT_EQ(Part(after.d_qkv, first, n, kRow),
              Part(before.d_qkv, first, n, kRow));
    EXPECT_NE(after.o, before.o);
    first += n;
  }
}

}  // namespace
}  // namespace delink::testing::masked_attention_test
