#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "framework/base/at.h"
#include "framework/base/rng.h"
#include "framework/optim/find_kernels.h"
#include "framework/optim/slab_optimizer.h"
#include "tests/framework/module/toy_model.h"

namespace delink::norm_test {
namespace {

using testing::MakeStore;
using testing::Write;

constexpr int kBlocks = 3;

class NormTest : public ::testing::Test {
 protected:
  NormTest() { testing::DeclareToy(registry_, kBlocks, 53); }

  std::unique_ptr<ParamStore> Store(DType dtype) {
    auto store =
        MakeStore(*device_, registry_, kBlocks, {}, 1, {.dtype = dtype});
    for (size_t s = 0; s < store->slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      const RngKey key = Fold(KeyFromSeed(4), s);
      const auto value = [key](int64_t i) {
        return Normal(key, static_cast<uint64_t>(i));
      };
      if (dtype == DType::kF64) {
        Write<double>(*store, slab, Plane::kGradient, value);
      } else {
        Write<float>(*store, slab, Plane::kGradient, [value](int64_t i) {
          return static_cast<float>(value(i));
        });
      }
    }
    return store;
  }

  // All slabs' block sums of one rank; the array starts out as garbage.
  std::vector<double> Sums(const ParamStore& store) {
    int64_t blocks = 0;
    for (const Slab& slab : store.slabs()) blocks += slab.blocks();
    std::vector<double> sums(static_cast<size_t>(blocks), std::nan(""));
    double* at = sums.data();
    for (size_t s = 0; s < store.slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      SumSquares(*device_->NewStream(), store, slab, store.owned(slab), at);
      at += store.slabs()[s].blocks();
    }
    return sums;
  }

  UpdateControl Finish(std::vector<double> sums, double loss, double tokens,
                       double clip, double lost = 0) {
    const auto n = static_cast<int64_t>(sums.size());
    sums.push_back(loss);
    sums.push_back(tokens);
    sums.push_back(lost);
    UpdateControl control{.lr = 1, .clip = clip};
    FinishNorm(*device_->NewStream(), *device_, sums.data(), n, &control);
    return control;
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
};

TEST_F(NormTest, IsTheNormOfTheMeanLossGradient) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const auto store = Store(dtype);
    long double squares = 0;
    for (size_t s = 0; s < store->slabs().size(); ++s) {
      const auto add = [&](const auto& values) {
        for (const auto x : values) {
          squares += static_cast<long double>(x) * x;
        }
      };
      const int slab = static_cast<int>(s);
      if (dtype == DType::kF64) {
        add(testing::Read<double>(*store, slab, Plane::kGradient));
      } else {
        add(testing::Read<float>(*store, slab, Plane::kGradient));
      }
    }
    const UpdateControl control = Finish(Sums(*store), 12.5, 64, 0);
    const auto expected = static_cast<double>(std::sqrt(squares)) / 64;
    EXPECT_NEAR(control.norm, expected, 1e-13 * expected);
    EXPECT_EQ(control.loss_sum, 12.5);
    EXPECT_EQ(control.tokens, 64);
    EXPECT_EQ(control.skip, 0);
    EXPECT_EQ(control.clip_factor, 1.0 / 64) << "no clipping";
    EXPECT_EQ(control.lr, 1) << "the host's";
  }
}

TEST_F(NormTest, ClipsAsTorch) {
  // |g| = 5 per token 0.5: norm 0.5.
  const UpdateControl above = Finish({9, 16}, 1, 10, 0.25);
  EXPECT_DOUBLE_EQ(above.norm, 0.5);
  EXPECT_DOUBLE_EQ(above.clip_factor, 0.25 / (0.5 + 1e-6) / 10);
  const UpdateControl below = Finish({9, 16}, 1, 10, 0.75);
  EXPECT_DOUBLE_EQ(below.clip_factor, 0.1);
  const UpdateControl zero = Finish({0, 0}, 1, 10, 0.75);
  EXPECT_DOUBLE_EQ(zero.clip_factor, 0.1);
  EXPECT_EQ(zero.skip, 0);
}

TEST_F(NormTest, SkipsWhatIsNotFinite) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Finish({1, 1}, 1, 10, 1).skip, 0);
  EXPECT_NE(Finish({1, nan}, 1, 10, 1).skip, 0);
  EXPECT_NE(Finish({1, 1}, 1, 10, 1, /*lost=*/2).skip, 0);
  EXPECT_EQ(Finish({1, 1}, 1, 10, 1, /*lost=*/2).lost, 2);
  EXPECT_NE(Finish({inf, 1}, 1, 10, 0).skip, 0);
  EXPECT_NE(Finish({1, 1}, nan, 10, 1).skip, 0);
  EXPECT_NE(Finish({1, 1}, -inf, 10, 1).skip, 0);
  EXPECT_NE(Finish({1, 1}, 0, 0, 1).skip, 0) << "no targets";
  EXPECT_NE(Finish({0, 0}, 0, 0, 1).skip, 0) << "no targets";
}

TEST_F(NormTest, EveryInstructionSetGivesTheSameBits) {
  std::vector<float> x;
  for (uint64_t i = 0; i < 70001; ++i) {
    x.push_back(static_cast<float>(Normal(KeyFromSeed(8), i)));
  }
  for (const int64_t n : {1, 15, 16, 17, 255, 257, 4099, 70001}) {
    const auto sums = [&](int set, std::vector<double>& out) {
      out.assign(static_cast<size_t>((n + 255) / 256), -1);
      return cpu::SumSquaresF32With(
          set, {.x = x.data(), .n = n, .block = 256, .sums = out.data()});
    };
    std::vector<double> expected, other;
    ASSERT_TRUE(sums(0, expected));
    double plain = 0;
    for (int64_t i = (n - 1) / 256 * 256; i < n; ++i) {
      plain += static_cast<double>(At(x, i)) * At(x, i);
    }
    EXPECT_NEAR(expected.back(), plain, 1e-12 * plain);
    for (const int set : {1, 2}) {
      if (sums(set, other)) {
        EXPECT_EQ(other, expected) << set;
      }
    }
  }
}

}  // namespace
}  // namespace delink::norm_test
