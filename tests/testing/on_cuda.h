// Tests on the first CUDA device. Without one they are skipped; but the
// emulated device is always there, so that its lack is a failure. Which of the
// two a test is built for says DELINK_EMULATED, a definition of its target.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "framework/device/backend.h"

namespace delink::testing {

class OnCuda : public ::testing::Test {
 protected:
  // `device_` stays null where the test goes no further.
  void SetUp() override {
    auto cuda = NewCudaDevice(0);
    if (!cuda.ok()) {
      if (DELINK_EMULATED) FAIL() << cuda.status().ToString();
      GTEST_SKIP() << cuda.status().ToString();
    }
    device_ = *std::move(cuda);
    stream_ = device_->NewStream();
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace delink::testing
