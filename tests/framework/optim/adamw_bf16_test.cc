// AdamW under bf16: the same update of an f32 master, and weights that are the
// master rounded, whoever holds which part of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "framework/base/rng.h"
#include "framework/optim/adamw.h"
#include "framework/optim/find_kernels.h"
#include "framework/tensor/bfloat16.h"
#include "tests/framework/module/toy_model.h"
#include "tests/framework/optim/adamw_planes.h"

namespace delink::adamw_bf16_test {
namespace {

using testing::MakeStore;
using testing::Read;
using testing::SlabNamed;
using testing::Write;

std::vector<uint16_t> BitsOf(const std::vector<BFloat16>& values) {
  std::vector<uint16_t> bits;
  for (const BFloat16 value : values) bits.push_back(value.bits);
  return bits;
}

std::vector<uint16_t> RoundedBits(const std::vector<float>& values) {
  return BitsOf({values.begin(), values.end()});
}

// With rounded weights, of which there is one more, as a guard.
struct Planes : testing::AdamWPlanes {
  static constexpr uint16_t kUntouched = 0xABCD;

  explicit Planes(int64_t n)
      : AdamWPlanes(n),
        w(static_cast<size_t>(n) + 1, BFloat16::FromBits(kUntouched)) {}
  AdamWArgs Args(int64_t begin, int64_t end, const UpdateControl* control) {
    AdamWArgs args = AdamWPlanes::Args(begin, end, control);
    args.w = w.data() + begin;
    return args;
  }
  std::vector<BFloat16> w;
};

TEST(AdamWBf16Kernel, IsTheF32UpdateWithItsResultRounded) {
  const UpdateControl control{.lr = 0.01, .clip_factor = 0.7};
  for (const int64_t n : {1, 7, 16, 17, 31, 33, 1009, 16385, 50021}) {
    Planes expected(n);
    AdamWArgs plain = expected.Args(0, n, &control);
    plain.w = nullptr;
    ASSERT_TRUE(cpu::AdamWF32With(0, plain));
    EXPECT_EQ(expected.w[0].bits, Planes::kUntouched);
    std::vector<uint16_t> rounded = RoundedBits(expected.p);
    rounded.push_back(Planes::kUntouched);
    for (const int set : {0, 1, 2}) {
      for (const int64_t cut : {int64_t{0}, int64_t{1}, n / 3, n / 2 + 1}) {
        Planes planes(n);
        if (!cpu::AdamWF32With(set, planes.Args(0, cut, &control))) break;
        cpu::AdamWF32With(set, planes.Args(cut, n, &control));
        ASSERT_TRUE(planes.p == expected.p && planes.m == expected.m &&
                    planes.v == expected.v)
            << n << " elements cut at " << cut << ", instructions " << set;
        ASSERT_EQ(BitsOf(planes.w), rounded)
            << n << " elements cut at " << cut << ", instructions " << set;
      }
    }
  }
}

// With a learning rate of 0 the master stays, so what is rounded can be chosen.
TEST(AdamWBf16Kernel, RoundsToNearestEven) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::pair<float, float> cases[] = {
      {1.0F, 1.0F},
      {0x1.01p0F, 0x1.00p0F},       // a tie, to the even one below
      {0x1.03p0F, 0x1.04p0F},       // a tie, to the even one above
      {0x1.010002p0F, 0x1.02p0F},   // just above a tie
      {0x1.02fffep0F, 0x1.02p0F},   // just below one
      {-0x1.03p0F, -0x1.04p0F},     //
      {0x1.fep127F, 0x1.fep127F},   // the largest
      {0x1.fffffep127F, infinity},  // what is too large
      {-0x1.ffp127F, -infinity},    // a tie with infinity
      {0x1p-133F, 0x1p-133F},       // the smallest
      {0x1.8p-134F, 0x1p-133F},     // below it
      {0x1p-149F, 0.0F},            //
      {infinity, infinity}};
  for (const int set : {0, 1, 2}) {
    // Alone, in a scalar tail, and in every lane of a vector.
    for (const size_t copies : {1, 5, 64}) {
      for (const auto& [value, expected] : cases) {
        Planes planes(static_cast<int64_t>(copies));
        std::fill(planes.p.begin(), planes.p.end(), value);
        const UpdateControl control{.lr = 0, .clip_factor = 1};
        if (!cpu::AdamWF32With(
                set, planes.Args(0, static_cast<int64_t>(copies), &control))) {
          break;
        }
        for (size_t i = 0; i < copies; ++i) {
          ASSERT_EQ(planes.p[i], value);
          ASSERT_EQ(float{planes.w[i]}, expected) << value << ", set " << set;
        }
      }
      Planes planes(static_cast<int64_t>(copies));
      std::fill(planes.p.begin(), planes.p.end(), std::nanf("1"));
      const UpdateControl control{.lr = 0, .clip_factor = 1};
      cpu::AdamWF32With(set,
                        planes.Args(0, static_cast<int64_t>(copies), &control));
      if (planes.w[0].bits != Planes::kUntouched) {
        for (size_t i = 0; i < copies; ++i) {
          ASSERT_TRUE(std::isnan(float{planes.w[i]}));
        }
      }
    }
  }
}

TEST(AdamWBf16Kernel, SkippingWritesNothing) {
  Planes planes(100);
  const Planes before = planes;
  const UpdateControl control{
      .lr = 0.1, .clip_factor = std::nan(""), .skip = 1};
  FindOptimKernels(DeviceKind::kCpu, DType::kF32)
      ->adamw(*NewCpuDevice()->NewStream(), planes.Args(0, 100, &control));
  EXPECT_EQ(planes.p, before.p);
  EXPECT_EQ(planes.m, before.m);
  EXPECT_EQ(BitsOf(planes.w), BitsOf(before.w));
}

class AdamWBf16 : public ::testing::Test {
 protected:
  static constexpr int kBlocks = 2;
  static constexpr int64_t kWidth = 37;
  static constexpr int64_t kSteps = 5;

  AdamWBf16() { testing::DeclareToy(registry_, kBlocks, kWidth); }

  std::unique_ptr<ParamStore> Trained(DType dtype, int slab, int rank = 0,
                                      int ranks = 1, int zero = 0) {
    auto store = MakeStore(*device_, registry_, kBlocks, {}, zero,
                           {.dtype = dtype, .rank = rank, .ranks = ranks});
    store->InitWeights(1);
    for (int64_t t = 1; t <= kSteps; ++t) {
      Write<float>(*store, slab, Plane::kGradient, [t](int64_t i) {
        return static_cast<float>(
            Normal(Fold(KeyFromSeed(3), static_cast<uint64_t>(t)),
                   static_cast<uint64_t>(i)));
      });
      const UpdateControl control{.lr = 0.01, .clip_factor = 0.3};
      optimizer_->Update(*device_->NewStream(), *store, slab, &control, t);
      EXPECT_EQ(store->master(),
                dtype == DType::kBF16 ? Plane::kMaster : Plane::kWeight);
    }
    return store;
  }

  int Slab(const std::string& name) {
    return SlabNamed(*MakeStore(*device_, registry_, kBlocks, {}), name);
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
  std::unique_ptr<SlabOptimizer> optimizer_ = NewAdamW({});
};

TEST_F(AdamWBf16, TheMasterGoesTheWayOfF32Weights) {
  for (const char* name :
       {"blocks/1/attention", "blocks/0/norm", "embed/embedding"}) {
    const int slab = Slab(name);
    const auto f32 = Trained(DType::kF32, slab);
    const auto bf16 = Trained(DType::kBF16, slab);
    const auto master = Read<float>(*bf16, slab, Plane::kMaster);
    EXPECT_EQ(master, Read<float>(*f32, slab, Plane::kWeight)) << name;
    for (const Plane plane : {Plane::kState0, Plane::kState1}) {
      EXPECT_EQ(Read<float>(*bf16, slab, plane),
                Read<float>(*f32, slab, plane));
    }
    EXPECT_EQ(BitsOf(Read<BFloat16>(*bf16, slab, Plane::kWeight)),
              RoundedBits(master))
        << name;
  }
}

TEST_F(AdamWBf16, AShardUpdatesItsMasterAndItsWeights) {
  const int slab = Slab("blocks/1/attention");
  const auto whole = Trained(DType::kBF16, slab);
  const auto master = Read<float>(*whole, slab, Plane::kMaster);
  const auto weight = BitsOf(Read<BFloat16>(*whole, slab, Plane::kWeight));
  const auto fresh =
      MakeStore(*device_, registry_, kBlocks, {}, 0, {.dtype = DType::kBF16});
  fresh->InitWeights(1);
  const auto start = BitsOf(Read<BFloat16>(*fresh, slab, Plane::kWeight));
  for (const int ranks : {2, 3, 7}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto shard = Trained(DType::kBF16, slab, rank, ranks, 1);
      const Range owned = shard->owned(slab);
      EXPECT_EQ(Read<float>(*shard, slab, Plane::kMaster),
                std::vector<float>(master.begin() + owned.begin,
                                   master.begin() + owned.end));
      const auto own = BitsOf(Read<BFloat16>(*shard, slab, Plane::kWeight));
      for (int64_t i = 0; i < static_cast<int64_t>(own.size()); ++i) {
        const auto at = static_cast<size_t>(i);
        const bool mine = i >= owned.begin && i < owned.end;
        ASSERT_EQ(own[at], mine ? weight[at] : start[at])
            << "element " << i << ", rank " << rank << " of " << ranks;
      }
    }
  }
}

}  // namespace
}  // namespace delink::adamw_bf16_test
