// The global norm on CUDA has the bits of the CPU's.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "framework/base/rng.h"
#include "framework/optim/kernels.h"
#include "tests/framework/optim/optim_on_cuda.h"

namespace delink::testing::norm_cuda_test {
namespace {

std::vector<float> Numbers(int64_t n) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(
        static_cast<float>(Normal(KeyFromSeed(8), static_cast<uint64_t>(i))));
  }
  return values;
}

class NormCuda : public OptimOnCuda {
 protected:
  void ExpectTheCpusSums(const std::vector<float>& x, int64_t block,
                         int64_t offset) {
    const auto n = static_cast<int64_t>(x.size());
    std::vector<double> expected(static_cast<size_t>((n + block - 1) / block),
                                 -1);
    DeviceArray<double> sums(*device_, expected);
    DeviceArray<float> values(*device_, x, offset);
    cpu_.sum_squares(
        *host_stream_,
        {.x = x.data(), .n = n, .block = block, .sums = expected.data()});
    kernels_->sum_squares(
        *stream_,
        {.x = values.data(), .n = n, .block = block, .sums = sums.data()});
    ASSERT_TRUE(SameBits(sums.Values(*stream_), expected))
        << n << " elements in blocks of " << block << ", offset " << offset;
  }

  // Returns what both made of it. `sums` end with a loss and its tokens.
  UpdateControl ExpectTheCpusControl(std::vector<double> sums,
                                     const UpdateControl& before,
                                     double lost = 0) {
    const auto n = static_cast<int64_t>(sums.size()) - 2;
    sums.push_back(lost);
    UpdateControl expected = before;
    DeviceArray<double> values(*device_, sums);
    DeviceArray<UpdateControl> control(*device_, {before});
    cpu_.finish_norm(*host_stream_,
                     {.sums = sums.data(), .n = n, .control = &expected});
    kernels_->finish_norm(
        *stream_, {.sums = values.data(), .n = n, .control = control.data()});
    const UpdateControl actual = control.Values(*stream_)[0];
    const auto same = [](double a, double b) {
      return a == b || (std::isnan(a) && std::isnan(b));
    };
    EXPECT_EQ(actual.lr, expected.lr);
    EXPECT_EQ(actual.clip, expected.clip);
    EXPECT_EQ(actual.clip_factor, expected.clip_factor);
    EXPECT_TRUE(same(actual.norm, expected.norm)) << actual.norm;
    EXPECT_TRUE(same(actual.loss_sum, expected.loss_sum)) << actual.loss_sum;
    EXPECT_TRUE(same(actual.tokens, expected.tokens)) << actual.tokens;
    EXPECT_EQ(actual.lost, expected.lost);
    EXPECT_EQ(actual.skip, expected.skip);
    return actual;
  }
};

TEST_F(NormCuda, SumsHaveTheBitsOfTheCpu) {
  for (const int64_t n :
       {1, 15, 16, 17, 255, 256, 257, 511, 513, 4099, 30001}) {
    const std::vector<float> x = Numbers(n);
    for (const int64_t block : {256, 2048, 16384}) {
      for (const int64_t offset : {0, 1}) {
        ExpectTheCpusSums(x, block, offset);
      }
    }
  }
}

TEST_F(NormCuda, SumsOfNothingAreNotWritten) { ExpectTheCpusSums({}, 256, 0); }

TEST_F(NormCuda, SumsOfLargeAndSmallNumbers) {
  std::vector<float> x = Numbers(3000);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = std::ldexp(x[i], static_cast<int>(i * 7 % 250) - 140);
  }
  ExpectTheCpusSums(x, 256, 0);
  x[700] = std::numeric_limits<float>::infinity();
  ExpectTheCpusSums(x, 256, 0);
}

TEST_F(NormCuda, FinishesAsTheCpuInTheOrderOfTheSums) {
  for (const int64_t n : {0, 1, 31, 255, 256, 257, 1000}) {
    std::vector<double> sums;
    for (int64_t i = 0; i < n; ++i) {
      // Of different sizes, so that the order is seen in the bits.
      sums.push_back(
          std::exp(8 * Normal(KeyFromSeed(2), static_cast<uint64_t>(i))));
    }
    sums.push_back(12.5);
    sums.push_back(64);
    for (const double clip : {0.0, 1e-3, 1e9}) {
      const UpdateControl control =
          ExpectTheCpusControl(sums, {.lr = 3, .clip = clip});
      EXPECT_EQ(control.skip, 0);
      EXPECT_EQ(control.clip_factor == 1.0 / 64,
                clip == 0 || n == 0 || control.norm < clip);
    }
  }
}

TEST_F(NormCuda, SkipsWhatIsNotFinite) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(ExpectTheCpusControl({1, 1, 1, 10}, {.clip = 1}).skip, 0);
  for (const std::vector<double>& sums : {std::vector<double>{1, nan, 1, 10},
                                          {inf, 1, 1, 10},
                                          {1, 1, nan, 10},
                                          {1, 1, -inf, 10},
                                          {1, 1, 0, 0},
                                          {0, 0, 0, 0},
                                          {1, 1, 1, nan}}) {
    EXPECT_NE(ExpectTheCpusControl(sums, {.clip = 1}).skip, 0);
    EXPECT_NE(ExpectTheCpusControl(sums, {}).skip, 0);
  }
}

TEST_F(NormCuda, SkipsWhereChoicesAreLost) {
  EXPECT_NE(ExpectTheCpusControl({1, 1, 1, 10}, {}, /*lost=*/1).skip, 0);
}

TEST_F(NormCuda, TheTailIsWhatWasCounted) {
  DeviceArray<double> loss(*device_, {2.5}), lost(*device_, {3}),
      tail(*device_, {-1, -1, -1, -1});
  DeviceArray<int64_t> tokens(*device_, {(int64_t{1} << 40) + 3});
  kernels_->sums_tail(*stream_, {.loss_sum = loss.data(),
                                 .tokens = tokens.data(),
                                 .lost = lost.data(),
                                 .votes = 7,
                                 .tail = tail.data()});
  EXPECT_EQ(tail.Values(*stream_),
            (std::vector<double>{2.5, 0x1p40 + 3, 3, 7}));
}

}  // namespace
}  // namespace delink::testing::norm_cuda_test
