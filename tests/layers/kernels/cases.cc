#include "tests/layers/kernels/cases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "layers/kernels/find_kernels.h"

namespace delink::testing {
namespace {

// How many numbers of a bf16 output are not the reference's, though so large
// that an error within f32's tolerance does not explain it.
int64_t Different(const Output& actual, const Output& expected) {
  int64_t count = 0;
  for (size_t i = 0; i < actual.values.size(); ++i) {
    const double e = expected.values[i];
    const double error = std::fabs(actual.values[i] - e);
    count += error > actual.tolerance * std::fmax(1.0, std::fabs(e)) ? 1 : 0;
  }
  return count;
}

}  // namespace

Outputs Expected(const Case& c, bool bf16, Stream& cpu) {
  return bf16 ? c.bf16(ReferenceKernelsBf16(), cpu)
              : c.f64(*FindKernels(DeviceKind::kCpu, DType::kF64), cpu);
}

void ExpectAgrees(const Outputs& actual, const Outputs& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].values.size(), expected[i].values.size());
    // Numbers as close as the tolerance may be rounded to neighbours, which
    // are up to 2^-7 apart.
    const bool rounded = actual[i].bf16 && actual[i].tolerance > 0;
    const int roundings = !rounded ? 0 : actual[i].twice ? 2 : 1;
    EXPECT_LE(WorstError(std::span<const double>(actual[i].values),
                         std::span<const double>(expected[i].values)),
              actual[i].tolerance + roundings * 0x1p-7)
        << actual[i].name;
    // That happens seldom. Cutting off, or rounding twice, would show.
    const auto elements = static_cast<int64_t>(actual[i].values.size());
    EXPECT_LE(rounded ? Different(actual[i], expected[i]) : 0,
              2 + (actual[i].twice ? 4 * elements / 10 : elements / 10))
        << actual[i].name;
  }
}

void ExpectSame(const Outputs& again, const Outputs& first) {
  ASSERT_EQ(again.size(), first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    // Comparing doubles is comparing bits: nothing here is NaN or -0.
    EXPECT_EQ(again[i].values, first[i].values) << first[i].name;
  }
}

}  // namespace delink::testing
