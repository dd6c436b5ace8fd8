// Tests of the CUDA device's kernels for f32 beside the CPU's.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "framework/optim/kernels.h"
#include "tests/testing/device_array.h"

namespace delink::testing {

class OnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    auto cuda = NewCudaDevice(0);
    if (!cuda.ok()) {
      if (DELINK_EMULATED) FAIL() << cuda.status().ToString();
      GTEST_SKIP() << cuda.status().ToString();
    }
    device_ = *std::move(cuda);
    stream_ = device_->NewStream();
    kernels_ = FindOptimKernels(DeviceKind::kCuda, DType::kF32);
    ASSERT_NE(kernels_, nullptr);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  const OptimKernels* kernels_ = nullptr;
  const OptimKernels& cpu_ = *FindOptimKernels(DeviceKind::kCpu, DType::kF32);
  std::unique_ptr<Device> host_ = NewCpuDevice();
  std::unique_ptr<Stream> host_stream_ = host_->NewStream();
};

}  // namespace delink::testing
