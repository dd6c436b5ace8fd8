// What tests of the reference share: its table on double, and gradients held
// against central differences.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "layers/kernels/find_kernels.h"
#include "tests/testing/numbers.h"

namespace delink::testing {

using Vector = std::vector<double>;

inline double Dot(const Vector& a, const Vector& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

class Reference : public ::testing::Test {
 protected:
  // `gradient` is what backward made of `x` for the loss dot(y, dy).
  void ExpectGradient(Vector& x, const Vector& gradient,
                      const std::function<double()>& loss) {
    const Vector expected = CentralDifferences(std::span<double>(x), loss);
    EXPECT_LT(RelativeError(std::span<const double>(gradient),
                            std::span<const double>(expected)),
              1e-6);
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  std::unique_ptr<Stream> owned_ = device_->NewStream();
  Stream& stream_ = *owned_;
  const Kernels& kernels_ = *FindKernels(DeviceKind::kCpu, DType::kF64);
};

}  // namespace delink::testing
