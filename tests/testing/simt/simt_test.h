// What the tests of the emulated device share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "framework/device/backend.h"
#include "tests/testing/simt/simt.h"

namespace delink::simt_test {

// A device and a stream, and memory that frees itself.
class SimtTest : public ::testing::Test {
 protected:
  SimtTest() : device_(std::move(NewCudaDevice(0)).value()) {
    stream_ = device_->NewStream();
  }
  ~SimtTest() override {
    stream_->Synchronize();
    for (const auto& [address, bytes] : taken_) device_->Free(address, bytes);
  }

  template <typename T>
  T* Take(int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    void* const address = device_->Allocate(bytes, "a test").value();
    taken_.emplace_back(address, bytes);
    return static_cast<T*>(address);
  }
  template <typename T>
  T* Take(const std::vector<T>& values) {
    const auto count = static_cast<int64_t>(values.size());
    T* const address = Take<T>(count);
    device_->CopyFromHost(*stream_, address, values.data(),
                          count * static_cast<int64_t>(sizeof(T)));
    return address;
  }
  // After all that the stream has been given.
  template <typename T>
  std::vector<T> Values(const T* address, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    device_->CopyToHost(*stream_, values.data(), address,
                        count * static_cast<int64_t>(sizeof(T)));
    stream_->Synchronize();
    return values;
  }

  // Orders of this seed, while what is returned lives.
  static simt::ScopedOptions WithSeed(uint64_t seed) {
    simt::Options options = simt::CurrentOptions();
    options.seed = seed;
    return simt::ScopedOptions(options);
  }

  static std::vector<float> Ramp(int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.5F * static_cast<float>(i % 97) - 3;
    }
    return values;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::pair<void*, int64_t>> taken_;
};

}  // namespace delink::simt_test
