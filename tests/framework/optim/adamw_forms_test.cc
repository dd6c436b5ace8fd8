// AdamW on parameters and moments that are kept in fewer bits, on the CPU: the
// plain update of what they stand for, rounded as the forms say.
#include "tests/framework/optim/adamw_forms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "framework/optim/find_kernels.h"

namespace delink::testing::adamw_forms_test {
namespace {

constexpr UpdateControl kControl = {
    .lr = 0.02, .clip_value = 0.9, .clip_factor = 0.7};

class AdamWFormsTest : public ::testing::Test {
 protected:
  AdamWForms Expected(AdamWForms planes, const UpdateControl& control) {
    planes.StepWith(kernels_.adamw, *stream_, control);
    return planes;
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  std::unique_ptr<Stream> stream_ = device_->NewStream();
  const OptimKernels& kernels_ =
      *FindOptimKernels(DeviceKind::kCpu, DType::kF32);
};

TEST_F(AdamWFormsTest, APlainStepRounded) {
  for (const Form form : AllForms()) {
    for (const int64_t n : {1, 5, 64, 255, 1009, 40'000}) {
      for (const auto& [in_block, first] :
           {std::pair{0, int64_t{0}}, std::pair{192, int64_t{1} << 34 | 64}}) {
        AdamWForms planes(form, n, in_block, first);
        const AdamWForms expected = Expected(planes, kControl);
        kernels_.adamw(*stream_, planes.Args(0, n, &kControl));
        ASSERT_TRUE(planes.SameAs(expected))
            << n << " elements, master " << static_cast<int>(form.master)
            << ", moments " << static_cast<int>(form.moments);
      }
    }
  }
}

// 24 columns of rows of 56, from inside of one on, as one call and row by row.
TEST_F(AdamWFormsTest, RowsOfAMatrixAreOneCall) {
  constexpr int64_t kColumns = 24, kPitch = 56, kInRow = 8, kRows = 90;
  constexpr int64_t kCount = kColumns * kRows - kInRow - 5;
  for (const Form form : AllForms()) {
    if (form.moments == StateStorage::kBlock8) continue;
    AdamWForms whole(form, kCount), rows = whole;
    AdamWArgs args = whole.Args(0, kCount, &kControl);
    args.numbers = {
        .first = 64, .columns = kColumns, .pitch = kPitch, .in_row = kInRow};
    const AdamWForms start = whole;
    kernels_.adamw(*stream_, args);
    for (const int set : {0, 1, 2}) {
      AdamWForms by_set = start;
      AdamWArgs same = by_set.Args(0, kCount, &kControl);
      same.numbers = args.numbers;
      if (!cpu::AdamWF32With(set, same)) continue;
      EXPECT_TRUE(by_set.SameAs(whole)) << set;
    }
    for (int64_t begin = 0, row = 0; begin < kCount; ++row) {
      const int64_t in_row = row == 0 ? kInRow : 0;
      const int64_t end = std::min(kCount, begin + kColumns - in_row);
      AdamWArgs part = rows.Args(begin, end, &kControl);
      part.numbers = {.first = 64 + row * kPitch + in_row};
      kernels_.adamw(*stream_, part);
      begin = end;
    }
    EXPECT_TRUE(rows.SameAs(whole)) << static_cast<int>(form.master) << ", "
                                    << static_cast<int>(form.moments);
  }
}

TEST_F(AdamWFormsTest, SkippingWritesNothing) {
  const UpdateControl skip = {.lr = 0.1, .clip_factor = 1, .skip = 1};
  for (const Form form : AllForms()) {
    AdamWForms planes(form, 300);
    planes.g[7] = std::nanf("");
    const AdamWForms before = planes;
    kernels_.adamw(*stream_, planes.Args(0, 300, &skip));
    EXPECT_TRUE(planes.SameAs(before));
  }
}

// A learning rate of 0 leaves the master alone, so that it can be anything:
// every bf16 with a tie behind it and what is beside one.
TEST_F(AdamWFormsTest, ASplitMasterIsExact) {
  const UpdateControl still = {.lr = 0, .clip_factor = 1};
  for (const uint32_t lower : {0x7FFF, 0x8000, 0x8001}) {
    AdamWForms planes({.master = MasterForm::kSplit}, 0x10000);
    for (uint32_t upper = 0; upper < 0x10000; ++upper) {
      planes.p[upper] = std::bit_cast<float>(upper << 16 | lower);
    }
    planes.Keep();
    kernels_.adamw(*stream_, planes.Args(0, planes.n, &still));
    for (uint32_t upper = 0; upper < 0x10000; ++upper) {
      const float after =
          SplitMaster{planes.w[upper], planes.low[upper]}.Value();
      if (std::isnan(planes.p[upper])) {
        ASSERT_TRUE(std::isnan(after)) << upper;
      } else {
        ASSERT_EQ(after, planes.p[upper]) << upper;
      }
    }
  }
}

// With a learning rate of 0 what is rounded can be chosen; weights begin as
// another number.
TEST_F(AdamWFormsTest, AWholeMasterIsRoundedToNearestEven) {
  const UpdateControl still = {.lr = 0, .clip_factor = 1};
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
      {infinity, infinity},
      {std::nanf("1"), std::nanf("")}};
  for (const int set : {0, 1, 2}) {
    // Alone, in a scalar tail, and in every lane of a vector.
    for (const int64_t copies : {1, 5, 64}) {
      for (const auto& [value, expected] : cases) {
        AdamWForms planes({}, copies);
        std::fill(planes.p.begin(), planes.p.end(), value);
        std::fill(planes.w.begin(), planes.w.end(), BFloat16(-1.0F).bits);
        if (!cpu::AdamWF32With(set, planes.Args(0, copies, &still))) break;
        for (const uint16_t w : planes.w) {
          const float rounded = BFloat16::FromBits(w);
          ASSERT_TRUE(std::isnan(value) ? std::isnan(rounded)
                                        : rounded == expected)
              << value << ", set " << set;
        }
      }
    }
  }
}

// A second moment of 1 that should decay by one part in a thousand a step, less
// than half of what bf16 can tell apart: rounded to the nearest it would never
// move.
TEST_F(AdamWFormsTest, SecondMomentsInBf16Decay) {
  const int64_t n = 4096;
  const int steps = 300;
  AdamWForms planes({.moments = StateStorage::kBF16}, n);
  std::fill(planes.v.begin(), planes.v.end(), 1.0F);
  std::fill(planes.g.begin(), planes.g.end(), 0.0F);
  planes.Keep();
  for (int step = 0; step < steps; ++step) {
    planes.key = Fold(KeyFromSeed(1), static_cast<uint64_t>(step));
    AdamWArgs args = planes.Args(0, n, &kControl);
    args.beta2 = 0.999;
    kernels_.adamw(*stream_, args);
  }
  double mean = 0;
  for (const uint16_t bits : planes.v16) mean += BFloat16::FromBits(bits);
  mean /= n;
  // Each step adds a variance of at most 2^-9 * 0.001 to an element.
  const double deviation = std::sqrt(steps * 0x1p-9 * 0.001 / n);
  EXPECT_NEAR(mean, std::pow(0.999, steps), 4 * deviation);
  EXPECT_EQ(float{BFloat16(0.999F)}, 1.0F) << "as it is without";
}

// What is far smaller than the largest of its block is still told from zero,
// over seven decades.
TEST_F(AdamWFormsTest, SmallMomentsInABlockKeepTheirSize) {
  AdamWForms planes({.moments = StateStorage::kBlock8}, kBlock8);
  for (int64_t i = 0; i < kBlock8; ++i) {
    const auto at = static_cast<size_t>(i);
    planes.v[at] = std::pow(10.0F, -6.5F * static_cast<float>(i) / kBlock8);
    planes.m[at] = (i % 2 == 0 ? 1.0F : -1.0F) * planes.v[at];
  }
  const std::vector<float> v = planes.v, m = planes.m;
  planes.Keep();
  for (size_t i = 0; i < v.size(); ++i) {
    // The one segment of the lowest decade stands for 5.5 times its begin;
    // where there are 64 they are 14% of theirs.
    const float most = v[i] > 0.1F ? 1.08F : 5.6F;
    ASSERT_GT(planes.v[i], v[i] / most);
    ASSERT_LT(planes.v[i], v[i] * most);
    ASSERT_GT(planes.m[i] / m[i], 1 / most);
    ASSERT_LT(planes.m[i] / m[i], most);
  }
  EXPECT_EQ(planes.v[0], v[0]) << "the largest is exact";
}

// Where a moment stays for good without a gradient while the scale of its block
// stays: it has fallen to where a step makes less than half of what codes there
// are apart.
template <bool kSigned>
float StaysAt(float beta) {
  const auto& fractions = kSigned ? kSignedFractions8 : kUnsignedFractions8;
  uint8_t code = kSigned ? 126 : 254;  // below the largest
  for (;;) {
    const uint8_t next = Code8<kSigned>(fractions[code] * beta);
    if (next == code) return fractions[code];
    code = next;
  }
}

// The limits that docs/architecture.md tells of.
TEST(Block8, HowFarAMomentDecays) {
  EXPECT_NEAR(StaysAt<true>(0.9F), 0.011, 0.0005);
  EXPECT_NEAR(StaysAt<false>(0.95F), 0.0135, 0.0005);
  EXPECT_NEAR(StaysAt<false>(0.99F), 0.35, 0.005);
  EXPECT_GT(StaysAt<false>(0.999F), 0.99);
}

}  // namespace
}  // namespace delink::testing::adamw_forms_test
