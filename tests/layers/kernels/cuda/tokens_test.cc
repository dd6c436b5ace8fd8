// What CUDA's embedding, dropout and cross-entropy promise beside the numbers,
// which the kernel test holds against the reference: the order of sums, the
// CPU's bits, rows at any address, more tokens than one sort takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "framework/base/rng.h"
#include "framework/tensor/bfloat16.h"
#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/cuda/token_sort.h"
#include "layers/kernels/find_kernels.h"
#include "tests/testing/device_array.h"
#include "tests/testing/numbers.h"
#include "tests/testing/on_cuda.h"

namespace delink::testing::tokens_test {
namespace {

class Tokens : public OnCuda {
 protected:
  template <typename T>
  std::vector<T> Empty(int64_t count) {
    return std::vector<T>(static_cast<size_t>(count), T(-7));
  }
};
template <typename T>
class TokensOf : public Tokens {};
using Types = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(TokensOf, Types);

TEST_F(Tokens, AreSortedStably) {
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  for (const auto& [n, V] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1},
                                                {31, 7},
                                                {32, 256},
                                                {33, 257},
                                                {256, 3},
                                                {257, 65'536},
                                                {300, 65'537},
                                                {5000, 300},
                                                {9000, 50'257},
                                                {700, kLargest}}) {
    const std::vector<int32_t> tokens =
        Integers("tokens", n, static_cast<int32_t>(V));
    std::vector<int32_t> order(tokens.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return tokens[a] < tokens[b];
    });
    DeviceArray<int32_t> ids(*device_, tokens);
    DeviceArray<char> memory(*device_, Empty<char>(cuda::TokenSortBytes(n)));
    const cuda::Occurrence* const sorted =
        cuda::SortTokens(*stream_, ids.data(), n, {0, V, false}, memory.data());
    std::vector<cuda::Occurrence> actual(tokens.size());
    device_->CopyToHost(*stream_, actual.data(), sorted,
                        n * int64_t{sizeof(cuda::Occurrence)});
    stream_->Synchronize();
    for (size_t i = 0; i < order.size(); ++i) {
      ASSERT_EQ(actual[i].position, order[i])
          << "place " << i << " of " << n << ", " << V << " ids";
      ASSERT_EQ(actual[i].token, tokens[order[i]]);
    }
  }
}

// Whole numbers, of which every sum is exact.
TEST_F(Tokens, AreMoreThanOneSortTakes) {
  const int64_t n = cuda::kMaxSorted + 1000, V = 3;
  std::vector<int32_t> tokens(static_cast<size_t>(n), 1);
  for (int64_t i = 0; i < n; i += 1000) tokens[i] = 2;
  std::vector<float> dy(static_cast<size_t>(n));
  std::vector<float> expected = {5, 5, 5};
  for (int64_t i = 0; i < n; ++i) {
    dy[i] = static_cast<float>(i % 7 - 3);
    expected[tokens[i]] += dy[i];
  }
  DeviceArray<int32_t> ids(*device_, tokens);
  DeviceArray<float> from(*device_, dy), to(*device_, {5, 5, 5});
  cuda::EmbeddingBackwardWeight<float>(*stream_, {.N = n,
                                                  .D = 1,
                                                  .V = V,
                                                  .tokens = ids.data(),
                                                  .dy = from.data(),
                                                  .dw = to.data(),
                                                  .accumulate = true});
  EXPECT_EQ(to.Values(*stream_), expected);
}

TYPED_TEST(TokensOf, AreGatheredBitForBit) {
  const int64_t V = 9, D = 40, N = 21;
  auto w = Normals<TypeParam>("w", V * D);
  w[3] = TypeParam(std::nanf("5"));
  w[D] = TypeParam(-0.0F);
  const std::vector<int32_t> tokens = Integers("tokens", N, V);
  std::vector<TypeParam> expected;
  for (const int32_t token : tokens) {
    expected.insert(expected.end(), w.begin() + token * D,
                    w.begin() + (token + 1) * D);
  }
  DeviceArray<int32_t> ids(*this->device_, tokens);
  for (const int64_t shift : {0, 1}) {
    DeviceArray<TypeParam> from(*this->device_, w, shift),
        to(*this->device_, this->template Empty<TypeParam>(N * D));
    cuda::EmbeddingForward<TypeParam>(*this->stream_, {.B = 3,
                                                       .T = N / 3,
                                                       .D = D,
                                                       .V = V,
                                                       .tokens = ids.data(),
                                                       .w = from.data(),
                                                       .p = nullptr,
                                                       .y = to.data()});
    EXPECT_TRUE(SameBits(to.Values(*this->stream_), expected)) << shift;
  }
}

TYPED_TEST(TokensOf, AreDroppedAsOnTheCpu) {
  const int64_t B = 3, T = 37;
  const DType dtype =
      std::is_same_v<TypeParam, float> ? DType::kF32 : DType::kBF16;
  const RngKey key = KeyFromSeed(11);
  const std::vector<int64_t> samples = {5, -1, int64_t{1} << 40};
  DeviceArray<RngKey> step_key(*this->device_, {key});
  DeviceArray<int64_t> sample(*this->device_, samples);
  for (const int64_t D : {1, 6, 8, 96, 97}) {
    for (const int64_t first : {int64_t{0}, int64_t{3}, int64_t{1} << 31}) {
      auto x = Normals<TypeParam>("x", B * T * D);
      x[0] = TypeParam(std::numeric_limits<float>::infinity());
      x[x.size() / 2] = TypeParam(-std::numeric_limits<float>::infinity());
      std::vector<TypeParam> expected(x.size());
      DropoutArgs args = {.B = B,
                          .T = T,
                          .D = D,
                          .rate = 0.37,
                          .step_key = &key,
                          .name_hash = HashName("here"),
                          .sample = samples.data(),
                          .first_position = first,
                          .x = x.data(),
                          .y = expected.data()};
      const auto cpu = NewCpuDevice();
      FindKernels(DeviceKind::kCpu, dtype)->dropout(*cpu->NewStream(), args);
      for (const int64_t shift : {0, 1}) {
        // In place, as an elementwise output may be.
        DeviceArray<TypeParam> y(*this->device_, x, shift);
        args.step_key = step_key.data();
        args.sample = sample.data();
        args.x = y.data();
        args.y = y.data();
        cuda::Dropout<TypeParam>(*this->stream_, args);
        ASSERT_TRUE(SameBits(y.Values(*this->stream_), expected))
            << "D " << D << ", first " << first << ", shift " << shift;
      }
    }
  }
}

// Logits, their losses and the sums of them.
template <typename T>
struct Loss {
  std::vector<T> gradient;
  std::vector<double> rows, z, sums;
  std::vector<int64_t> count;
  bool operator==(const Loss& other) const {
    return SameBits(gradient, other.gradient) && SameBits(rows, other.rows) &&
           SameBits(z, other.z) && SameBits(sums, other.sums) &&
           count == other.count;
  }
};

template <typename T>
class TokensLoss : public Tokens {
 protected:
  static constexpr int64_t kRows = 23, kVocabulary = 2077;

  // In calls of `rows` rows; logits begin `shift` elements behind an aligned
  // address.
  Loss<T> Run(const std::vector<T>& logits, int64_t rows, int64_t shift) {
    std::vector<int32_t> targets = Integers("targets", kRows, kVocabulary);
    targets[4] = targets[11] = -1;
    DeviceArray<T> x(*device_, logits, shift);
    DeviceArray<int32_t> target(*device_, targets);
    DeviceArray<double> row_loss(*device_, Empty<double>(kRows)),
        row_z(*device_, Empty<double>(kRows)), sums(*device_, {1e3, 1e-3});
    DeviceArray<int64_t> count(*device_, {5});
    for (int64_t n = 0; n < kRows; n += rows) {
      cuda::CrossEntropy<T>(*stream_, {.N = std::min(rows, kRows - n),
                                       .V = kVocabulary,
                                       .ld = kVocabulary,
                                       .logits = x.data() + n * kVocabulary,
                                       .targets = target.data() + n,
                                       .ignore_index = -1,
                                       .want_grad = true,
                                       .row_loss = row_loss.data() + n,
                                       .loss_sum = sums.data(),
                                       .count = count.data(),
                                       .z_weight = 0.1,
                                       .row_z = row_z.data() + n,
                                       .z_sum = sums.data() + 1});
    }
    return {x.Values(*stream_), row_loss.Values(*stream_),
            row_z.Values(*stream_), sums.Values(*stream_),
            count.Values(*stream_)};
  }
};
TYPED_TEST_SUITE(TokensLoss, Types);

TYPED_TEST(TokensLoss, DoesNotDependOnHowRowsAreGroupedOrWhereTheyLie) {
  const auto logits =
      Normals<TypeParam>("x", this->kRows * this->kVocabulary, 3.0);
  const Loss<TypeParam> whole = this->Run(logits, this->kRows, 0);
  EXPECT_EQ(whole.count[0], 5 + this->kRows - 2);
  EXPECT_GT(whole.sums[0], 1e3);
  EXPECT_TRUE(this->Run(logits, this->kRows, 0) == whole) << "again";
  EXPECT_TRUE(this->Run(logits, 5, 0) == whole) << "in five calls";
  EXPECT_TRUE(this->Run(logits, this->kRows, 1) == whole) << "one further";
  EXPECT_TRUE(this->Run(logits, 1, 3) == whole) << "row by row, unaligned";
}

TYPED_TEST(TokensLoss, HasWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  auto logits = Normals<TypeParam>("x", this->kRows * this->kVocabulary);
  const auto put = [&](int64_t n, int64_t v, float value) {
    logits[n * this->kVocabulary + v] = TypeParam(value);
  };
  const std::vector<int32_t> targets =
      Integers("targets", this->kRows, this->kVocabulary);
  put(0, (targets[0] + 1) % this->kVocabulary, -infinity);
  put(1, 77, std::nanf(""));
  put(2, 1000, infinity);
  // A thread's share, and more, of nothing but -infinity.
  for (int64_t v = 0; v < this->kVocabulary; ++v) {
    if (v != targets[3]) put(3, v, -infinity);
  }
  const Loss<TypeParam> loss = this->Run(logits, this->kRows, 0);
  EXPECT_TRUE(std::isfinite(loss.rows[0]));
  EXPECT_TRUE(std::isnan(loss.rows[1]));
  EXPECT_TRUE(std::isnan(loss.rows[2]));
  EXPECT_EQ(loss.rows[3], 0.0);
  EXPECT_TRUE(std::isfinite(loss.rows[5]));
  EXPECT_TRUE(std::isnan(loss.sums[0]));
  for (int64_t v = 0; v < this->kVocabulary; ++v) {
    EXPECT_TRUE(std::isfinite(float{loss.gradient[v]}));
    EXPECT_TRUE(std::isnan(float{loss.gradient[this->kVocabulary + v]}));
  }
}

}  // namespace
}  // namespace delink::testing::tokens_test
