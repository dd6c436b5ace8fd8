// AdamW on a split master and on none: the CPU's update of an f32, split or
// rounded.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "framework/base/rng.h"
#include "framework/optim/cuda/cuda.h"
#include "framework/tensor/master.h"
#include "framework/tensor/bfloat16.h"
#include "tests/framework/optim/adamw_planes.h"
#include "tests/framework/optim/optim_on_cuda.h"

namespace delink::testing {
namespace {

using Halves = std::vector<uint16_t>;

constexpr UpdateControl kControl = {.lr = 0.01, .clip_factor = 0.7};
constexpr UpdateControl kStill = {.lr = 0, .clip_factor = 1};

class MastersCuda : public OptimOnCuda {
 protected:
  AdamWPlanes OnHost(AdamWPlanes planes, const UpdateControl& control) {
    cpu_.adamw(*host_stream_,
               planes.Args(0, static_cast<int64_t>(planes.p.size()), &control));
    return planes;
  }

  // Calls update(args, begin) for pieces of the planes on the device, without
  // p and w, and leaves m and v of it in `planes`.
  template <typename Update>
  void OnDevice(AdamWPlanes& planes, const UpdateControl& control,
                int64_t offset, int64_t cut, Update update) {
    DeviceArray<float> g(*device_, planes.g, offset),
        m(*device_, planes.m, offset), v(*device_, planes.v, offset);
    DeviceArray<UpdateControl> record(*device_, {control});
    const auto n = static_cast<int64_t>(planes.p.size());
    for (const auto& [begin, end] :
         {std::pair{int64_t{0}, cut}, std::pair{cut, n}}) {
      AdamWArgs args = planes.Args(begin, end, record.data());
      args.p = nullptr;
      args.g = g.data() + begin;
      args.m = m.data() + begin;
      args.v = v.data() + begin;
      update(args, begin);
    }
    planes.m = m.Values(*stream_);
    planes.v = v.Values(*stream_);
  }

  // The masters that it left, and their weights.
  AdamWPlanes Split(AdamWPlanes planes, const UpdateControl& control,
                    Halves* weights, int64_t offset = 0, int64_t cut = 0) {
    Halves upper, lower;
    for (const float p : planes.p) {
      upper.push_back(SplitMaster::Of(p).weight);
      lower.push_back(SplitMaster::Of(p).low);
    }
    DeviceArray<uint16_t> w(*device_, upper, offset),
        low(*device_, lower, offset);
    OnDevice(planes, control, offset, cut, [&](AdamWArgs args, int64_t begin) {
      args.w = w.data() + begin;
      cuda::AdamWSplit(*stream_, {.adamw = args, .low = low.data() + begin});
    });
    *weights = w.Values(*stream_);
    const Halves rest = low.Values(*stream_);
    for (size_t i = 0; i < planes.p.size(); ++i) {
      planes.p[i] = SplitMaster{(*weights)[i], rest[i]}.Value();
    }
    return planes;
  }

  Halves Stochastic(AdamWPlanes& planes, const UpdateControl& control,
                    RngKey key, uint64_t first, int64_t cut = 0) {
    Halves weights;
    for (const float p : planes.p) weights.push_back(BFloat16(p).bits);
    DeviceArray<uint16_t> w(*device_, weights);
    OnDevice(planes, control, 0, cut, [&](AdamWArgs args, int64_t begin) {
      args.w = w.data() + begin;
      cuda::AdamWStochastic(*stream_,
                            {.adamw = args,
                             .key = key,
                             .first = first + static_cast<uint64_t>(begin)});
    });
    return w.Values(*stream_);
  }
};

uint16_t RandomHalf(RngKey key, uint64_t index) {
  const uint32_t word = Philox(key, index / 8, 0)[index % 8 / 2];
  return static_cast<uint16_t>(index % 2 == 0 ? word : word >> 16);
}

TEST_F(MastersCuda, ASplitMasterIsUpdatedAsAWholeOne) {
  for (const int64_t n : {1, 5, 16, 1009, 4100}) {
    const AdamWPlanes expected = OnHost(AdamWPlanes(n), kControl);
    for (const int64_t offset : {0, 1, 4}) {
      for (const int64_t cut : {int64_t{0}, n / 3}) {
        Halves weights;
        ASSERT_TRUE(Split(AdamWPlanes(n), kControl, &weights, offset, cut) ==
                    expected)
            << n << " elements, offset " << offset << ", cut at " << cut;
        for (size_t i = 0; i < weights.size(); ++i) {
          ASSERT_EQ(weights[i], SplitMaster::Of(expected.p[i]).weight);
        }
      }
    }
  }
}

// A learning rate of 0 leaves the master alone, so that it can be anything:
// every bf16 with a tie behind it and what is beside one.
TEST_F(MastersCuda, ASplitMasterIsExact) {
  for (const uint32_t lower : {0x7FFF, 0x8000, 0x8001}) {
    AdamWPlanes planes(0x10000);
    for (uint32_t upper = 0; upper < 0x10000; ++upper) {
      planes.p[upper] = std::bit_cast<float>(upper << 16 | lower);
    }
    Halves weights;
    const AdamWPlanes after = Split(planes, kStill, &weights);
    for (uint32_t upper = 0; upper < 0x10000; ++upper) {
      if (std::isnan(planes.p[upper])) {
        ASSERT_TRUE(std::isnan(after.p[upper])) << upper;
        ASSERT_TRUE(std::isnan(float{BFloat16::FromBits(weights[upper])}));
      } else {
        ASSERT_EQ(after.p[upper], planes.p[upper]) << upper;
      }
    }
  }
}

TEST_F(MastersCuda, WeightsWithoutAMasterAreRoundedStochastically) {
  const RngKey key = Fold(KeyFromSeed(5), uint64_t{3});
  for (const int64_t n : {1, 7, 1009, 4100}) {
    AdamWPlanes start(n);
    for (float& p : start.p) p = BFloat16(p);
    const AdamWPlanes expected = OnHost(start, kControl);
    // Groups of four within a block of the generator, and across.
    for (const uint64_t first :
         {uint64_t{0}, uint64_t{4}, uint64_t{1} << 33 | 3}) {
      for (const int64_t cut : {int64_t{0}, n / 2}) {
        AdamWPlanes actual = start;
        const Halves weights = Stochastic(actual, kControl, key, first, cut);
        for (size_t i = 0; i < weights.size(); ++i) {
          ASSERT_EQ(weights[i], RoundStochastically(expected.p[i],
                                                    RandomHalf(key, first + i)))
              << "element " << i << " of " << n << ", first " << first;
        }
        ASSERT_TRUE(SameBits(actual.m, expected.m));
        ASSERT_TRUE(SameBits(actual.v, expected.v));
      }
    }
  }
}

// Steps of 1/16 of the distance between two bf16: each is lost when rounded to
// the nearest, and none is on average when rounded stochastically.
TEST_F(MastersCuda, SmallStepsAreNotLost) {
  const int64_t n = 4096;
  AdamWPlanes planes(n);
  std::fill(planes.p.begin(), planes.p.end(), 1.0F);
  std::fill(planes.g.begin(), planes.g.end(), 0.0F);
  std::fill(planes.m.begin(), planes.m.end(), 0.0F);
  std::fill(planes.v.begin(), planes.v.end(), 0.0F);
  // Decay alone moves them: 1 - lr * 0.1 = 1 - 2^-12.
  const UpdateControl decaying = {.lr = 10 * 0x1p-12, .clip_factor = 1};
  const Halves weights = Stochastic(planes, decaying, KeyFromSeed(1), 0);
  double moved = 0;
  for (const uint16_t bits : weights) moved += 1 - BFloat16::FromBits(bits);
  // The standard deviation of the mean is 1/16 of it.
  EXPECT_NEAR(moved / n, 0x1p-12, 0x1p-12 / 4);
  EXPECT_EQ(float{BFloat16(1 - 0x1p-12F)}, 1.0F) << "as it is without";
}

TEST_F(MastersCuda, SkippingWritesNothing) {
  const UpdateControl skip = {.lr = 0.1, .clip_factor = 1, .skip = 1};
  Halves weights;
  EXPECT_TRUE(Split(AdamWPlanes(100), skip, &weights) == AdamWPlanes(100));
  AdamWPlanes planes(100);
  for (float& p : planes.p) p = BFloat16(p);
  const AdamWPlanes before = planes;
  weights = Stochastic(planes, skip, {}, 0);
  for (size_t i = 0; i < weights.size(); ++i) {
    ASSERT_EQ(weights[i], BFloat16(before.p[i]).bits);
  }
  EXPECT_TRUE(planes == before);
}

}  // namespace
}  // namespace delink::testing
