// Tests of the CUDA device's kernels for f32 beside the CPU's.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "framework/optim/find_kernels.h"
#include "tests/testing/device_array.h"
#include "tests/testing/on_cuda.h"

namespace delink::testing {

class OptimOnCuda : public OnCuda {
 protected:
  void SetUp() override {
    OnCuda::SetUp();
    if (device_ == nullptr) return;
    kernels_ = FindOptimKernels(DeviceKind::kCuda, DType::kF32);
    ASSERT_NE(kernels_, nullptr);
  }

  const OptimKernels* kernels_ = nullptr;
  const OptimKernels& cpu_ = *FindOptimKernels(DeviceKind::kCpu, DType::kF32);
  std::unique_ptr<Device> host_ = NewCpuDevice();
  std::unique_ptr<Stream> host_stream_ = host_->NewStream();
};

}  // namespace delink::testing
