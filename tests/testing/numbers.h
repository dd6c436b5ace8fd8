// Numbers for tests: reproducible inputs, ugly sizes, and comparisons with
// tolerances that follow from the type and the length of a sum.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "framework/base/rng.h"

namespace delink::testing {

// 1, primes, vector widths and their neighbours.
inline constexpr int64_t kUglySizes[] = {1,  2,  3,  5,  7,  8,  9,  13, 15,
                                         16, 17, 31, 32, 33, 64, 65, 97};

// Standard normal numbers named `name`, the same on every call.
template <typename T>
std::vector<T> Normals(std::string_view name, int64_t count,
                       double scale = 1.0) {
  const RngKey key = Fold(KeyFromSeed(1), name);
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(scale * Normal(key, i));
  }
  return values;
}

// Whole numbers in [0, bound).
std::vector<int32_t> Integers(std::string_view name, int64_t count,
                              int32_t bound);

// A bound on the error of a sum of `length` products of numbers about 1 in T.
// The partial sums grow like the root of their length and so does the sum of
// their rounding errors, which wander; 8 is for elementary functions.
template <typename T>
double Tolerance(int64_t length) {
  return std::numeric_limits<T>::epsilon() *
         (static_cast<double>(length) + 8.0);
}

// |actual - expected| / max(|expected|, floor), Euclidean norms; infinite when
// anything is not finite.
template <typename A, typename E>
double RelativeError(std::span<const A> actual, std::span<const E> expected,
                     double floor = 1e-30) {
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = double(actual[i]) - double(expected[i]);
    if (!std::isfinite(d)) return std::numeric_limits<double>::infinity();
    difference += d * d;
    norm += double(expected[i]) * double(expected[i]);
  }
  return std::sqrt(difference) / std::fmax(std::sqrt(norm), floor);
}

// max |actual - expected| / max(1, |expected|), element by element, so that one
// bad element among many does not hide in a norm.
template <typename A, typename E>
double WorstError(std::span<const A> actual, std::span<const E> expected) {
  double worst = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = std::fabs(double(actual[i]) - double(expected[i])) /
                     std::fmax(1.0, std::fabs(double(expected[i])));
    if (!(d <= worst)) worst = d;
    if (std::isnan(d)) return std::numeric_limits<double>::infinity();
  }
  return worst;
}

// The derivative of loss() by each of x's elements, by central differences;
// x is as it was afterwards.
template <typename Loss>
std::vector<double> CentralDifferences(std::span<double> x, const Loss& loss,
                                       double step = 1e-5) {
  std::vector<double> gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + step;
    const double above = loss();
    x[i] = kept - step;
    const double below = loss();
    x[i] = kept;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

}  // namespace delink::testing
