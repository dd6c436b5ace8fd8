// Masks depend on who is asked about, not on how the batch is cut.
#include "layers/ops/dropout.h"

#include <gtest/gtest.h>

#include "tests/testing/numbers.h"
#include "tests/testing/visit_runner.h"

namespace delink::dropout_test {
namespace {

using Values = std::vector<double>;

constexpr double kRate = 0.3;

struct Call {
  std::vector<int64_t> samples;
  int64_t T = 1, D = 1;
  int64_t first_position = 0;
  uint64_t step = 1;
  std::string_view name = "blocks/0/mlp";
  bool training = true;
  double rate = kRate;
};

// Dropout of ones.
Values Mask(const Call& c) {
  const auto B = static_cast<int64_t>(c.samples.size());
  const std::unique_ptr<Device> device = NewCpuDevice();
  const RngKey key = KeyFromSeed(c.step);
  Values x(static_cast<size_t>(B * c.T * c.D), 1.0), y(x.size());
  testing::VisitRunner visit({.device = device.get(), .layer = [&](Var v) {
                                return ops::Dropout(v, c.rate,
                                                    HashName(c.name));
                              }});
  const Shape shape{B, c.T, c.D};
  visit.Forward(Phase::kForward,
                {.training = c.training,
                 .step_key = &key,
                 .samples = c.samples.data(),
                 .first_position = c.first_position},
                Tensor(x.data(), DType::kF64, shape),
                Tensor(y.data(), DType::kF64, shape));
  return y;
}

TEST(Dropout, IsTheSameHoweverTheBatchIsCut) {
  const Values whole = Mask({.samples = {5, 9}, .T = 7, .D = 5});
  const Values first = Mask({.samples = {5}, .T = 7, .D = 5});
  const Values second = Mask({.samples = {9}, .T = 7, .D = 5});
  Values joined = first;
  joined.insert(joined.end(), second.begin(), second.end());
  EXPECT_EQ(whole, joined);
  const Values tail =
      Mask({.samples = {5}, .T = 4, .D = 5, .first_position = 3});
  EXPECT_EQ(tail, Values(first.begin() + 3 * 5, first.end()));
}

TEST(Dropout, DiffersByNameStepAndSample) {
  const Call call{.samples = {5}, .T = 10, .D = 10};
  Call other = call;
  other.name = "blocks/1/mlp";
  EXPECT_NE(Mask(call), Mask(other));
  other = call;
  other.step = 2;
  EXPECT_NE(Mask(call), Mask(other));
  other = call;
  other.samples = {6};
  EXPECT_NE(Mask(call), Mask(other));
}

TEST(Dropout, DoesNothingWhenOff) {
  for (const bool training : {true, false}) {
    const std::unique_ptr<Device> device = NewCpuDevice();
    Values x(4, 1.0);
    testing::VisitRunner visit({.device = device.get(), .layer = [&](Var v) {
                                  return ops::Dropout(v, training ? 0.0 : 0.5,
                                                      1);
                                }});
    visit.Forward(Phase::kForward, {.training = training},
                  Tensor(x.data(), DType::kF64, {1, 2, 2}), Tensor());
    EXPECT_EQ(visit.output().data(), x.data());
    EXPECT_EQ(device->allocations(), 0);
  }
}

}  // namespace
}  // namespace delink::dropout_test
