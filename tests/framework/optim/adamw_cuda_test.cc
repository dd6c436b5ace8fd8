// AdamW on CUDA has the bits of AdamW on the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "framework/optim/find_kernels.h"
#include "framework/tensor/bfloat16.h"
#include "tests/framework/optim/adamw_planes.h"
#include "tests/framework/optim/optim_on_cuda.h"

namespace delink::testing::adamw_cuda_test {
namespace {

std::vector<uint16_t> BitsOf(const std::vector<BFloat16>& values) {
  std::vector<uint16_t> bits;
  for (const BFloat16 value : values) bits.push_back(value.bits);
  return bits;
}

struct Planes : AdamWPlanes {
  explicit Planes(int64_t n)
      : AdamWPlanes(n), w(static_cast<size_t>(n), BFloat16(-1.0F)) {}
  AdamWArgs Args(int64_t begin, int64_t end, const UpdateControl* control) {
    AdamWArgs args = AdamWPlanes::Args(begin, end, control);
    args.w = w.data() + begin;
    return args;
  }
  bool SameAs(const Planes& other) const {
    return SameBits(p, other.p) && SameBits(m, other.m) &&
           SameBits(v, other.v) && BitsOf(w) == BitsOf(other.w);
  }
  std::vector<BFloat16> w;
};

class AdamWCuda : public OptimOnCuda {
 protected:
  struct How {
    bool rounds = true;  // writes w too
    int64_t offset = 0;  // elements that no plane is aligned by
    std::vector<int64_t> cuts = {};
  };

  Planes OnHost(Planes planes, const UpdateControl& control, bool rounds) {
    AdamWArgs args =
        planes.Args(0, static_cast<int64_t>(planes.p.size()), &control);
    if (!rounds) args.w = nullptr;
    cpu_.adamw(*host_stream_, args);
    return planes;
  }

  Planes OnDevice(Planes planes, const UpdateControl& control, const How& how) {
    DeviceArray<float> p(*device_, planes.p, how.offset),
        g(*device_, planes.g, how.offset), m(*device_, planes.m, how.offset),
        v(*device_, planes.v, how.offset);
    DeviceArray<BFloat16> w(*device_, planes.w, how.offset);
    DeviceArray<UpdateControl> record(*device_, {control});
    int64_t begin = 0;
    std::vector<int64_t> ends = how.cuts;
    ends.push_back(static_cast<int64_t>(planes.p.size()));
    for (const int64_t end : ends) {
      AdamWArgs args = planes.Args(begin, end, record.data());
      args.p = p.data() + begin;
      args.g = g.data() + begin;
      args.m = m.data() + begin;
      args.v = v.data() + begin;
      args.w = how.rounds ? w.data() + begin : nullptr;
      kernels_->adamw(*stream_, args);
      begin = end;
    }
    planes.p = p.Values(*stream_);
    EXPECT_TRUE(SameBits(g.Values(*stream_), planes.g));
    planes.m = m.Values(*stream_);
    planes.v = v.Values(*stream_);
    planes.w = w.Values(*stream_);
    return planes;
  }
};

constexpr UpdateControl kControl = {.lr = 0.01, .clip_factor = 0.7};

TEST_F(AdamWCuda, HasTheBitsOfTheCpu) {
  for (const int64_t n : {1, 3, 4, 5, 7, 16, 17, 1009, 1024, 1025, 20021}) {
    for (const bool rounds : {false, true}) {
      const Planes expected = OnHost(Planes(n), kControl, rounds);
      ASSERT_FALSE(expected.SameAs(Planes(n)));
      for (const int64_t offset : {0, 1, 4}) {
        const How how = {.rounds = rounds, .offset = offset};
        ASSERT_TRUE(OnDevice(Planes(n), kControl, how).SameAs(expected))
            << n << " elements, offset " << offset << ", rounds " << rounds;
      }
    }
  }
}

TEST_F(AdamWCuda, CuttingChangesNoBit) {
  const int64_t n = 2053;
  const Planes expected = OnHost(Planes(n), kControl, true);
  for (const std::vector<int64_t>& cuts :
       {std::vector<int64_t>{1}, {4}, {0, n}, {n / 3, n / 2 + 1}}) {
    ASSERT_TRUE(OnDevice(Planes(n), kControl, {.cuts = cuts}).SameAs(expected));
  }
}

// Many sizes of numbers: roots and quotients that are not normal, that are too
// large, and a few thousand roundings of each operation.
TEST_F(AdamWCuda, RoundsEachOperationAsIeee754Says) {
  Planes planes(8192);
  for (size_t i = 0; i < planes.p.size(); ++i) {
    const int size = static_cast<int>(i % 251) - 125;
    planes.p[i] = std::ldexp(planes.p[i], size / 3);
    planes.g[i] = std::ldexp(planes.g[i], size);
    planes.m[i] = std::ldexp(planes.m[i], size - 20);
    planes.v[i] = std::ldexp(planes.v[i], static_cast<int>(i % 149) - 148);
  }
  const Planes expected = OnHost(planes, kControl, true);
  EXPECT_TRUE(OnDevice(planes, kControl, {}).SameAs(expected));
  EXPECT_TRUE(OnDevice(planes, kControl, {.offset = 3}).SameAs(expected));
}

TEST_F(AdamWCuda, NotANumberStaysThat) {
  const float infinity = std::numeric_limits<float>::infinity();
  Planes planes(13);
  planes.g[0] = std::nanf("");
  planes.g[5] = infinity;
  planes.p[7] = -infinity;
  planes.p[12] = std::nanf("");
  const Planes expected = OnHost(planes, kControl, true);
  const Planes actual = OnDevice(planes, kControl, {});
  for (size_t i = 0; i < planes.p.size(); ++i) {
    if (std::isnan(expected.p[i])) {
      EXPECT_TRUE(std::isnan(actual.p[i])) << i;
      EXPECT_TRUE(std::isnan(float{actual.w[i]})) << i;
    } else {
      EXPECT_EQ(actual.p[i], expected.p[i]) << i;
      EXPECT_EQ(actual.w[i].bits, expected.w[i].bits) << i;
    }
  }
  EXPECT_TRUE(std::isnan(actual.p[0]) && std::isnan(actual.p[12]));
  EXPECT_EQ(actual.p[7], -infinity);
}

// With a learning rate of 0 the master stays, so what is rounded can be chosen:
// each bf16, what is just above and below it, and halfway to the next.
TEST_F(AdamWCuda, RoundsWeightsAsTheCpu) {
  Planes planes(4 * 256);
  for (size_t i = 0; i < planes.p.size(); ++i) {
    const auto bits = static_cast<uint32_t>(i / 4 * 257) << 16;
    const uint32_t around[] = {0x7FFF, 0x8000, 0x8001, 0xFFFF};
    const float value = std::bit_cast<float>(bits | around[i % 4]);
    planes.p[i] = std::isnan(value) ? 1.0F : value;
  }
  const UpdateControl still = {.lr = 0, .clip_factor = 1};
  EXPECT_TRUE(OnDevice(planes, still, {}).SameAs(OnHost(planes, still, true)));
}

TEST_F(AdamWCuda, SkippingWritesNothing) {
  UpdateControl control = {.lr = 0.1, .clip_factor = std::nan(""), .skip = 1};
  EXPECT_TRUE(OnDevice(Planes(100), control, {}).SameAs(Planes(100)));
}

TEST_F(AdamWCuda, NothingIsDoneToNothing) {
  EXPECT_TRUE(OnDevice(Planes(0), kControl, {}).SameAs(Planes(0)));
}

TEST_F(AdamWCuda, OnlyF32) {
  EXPECT_EQ(FindOptimKernels(DeviceKind::kCuda, DType::kF64), nullptr);
  EXPECT_EQ(FindOptimKernels(DeviceKind::kCuda, DType::kBF16), nullptr);
}

}  // namespace
}  // namespace delink::testing::adamw_cuda_test
