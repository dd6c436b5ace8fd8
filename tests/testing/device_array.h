// Arrays in a device's memory, for testing kernels there at any alignment.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "framework/device/backend.h"

namespace delink::testing {

// `offset` elements in front and one behind, which nobody may change.
template <typename T>
class DeviceArray {
 public:
  DeviceArray(Device& device, const std::vector<T>& values, int64_t offset = 0)
      : device_(device),
        stream_(device.NewStream()),
        offset_(offset),
        size_(static_cast<int64_t>(values.size())),
        around_(static_cast<size_t>(offset + size_ + 1)) {
    std::memset(static_cast<void*>(around_.data()), 0x3B,
                around_.size() * sizeof(T));
    auto memory = device.Allocate(Bytes(), "a test");
    EXPECT_TRUE(memory.ok()) << memory.status().ToString();
    memory_ = static_cast<T*>(*memory);
    std::vector<T> all = around_;
    std::copy(values.begin(), values.end(), all.begin() + offset);
    device_.CopyFromHost(*stream_, memory_, all.data(), Bytes());
    stream_->Synchronize();
  }
  ~DeviceArray() { device_.Free(memory_, Bytes()); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return memory_ + offset_; }

  // What it holds, once `work` is done.
  std::vector<T> Values(Stream& work) const {
    work.Synchronize();
    std::vector<T> all(around_.size());
    device_.CopyToHost(*stream_, all.data(), memory_, Bytes());
    stream_->Synchronize();
    const auto first = all.begin() + offset_, last = first + size_;
    const auto same = [](const T& a, const T& b) {
      return std::memcmp(&a, &b, sizeof(T)) == 0;
    };
    EXPECT_TRUE(std::equal(all.begin(), first, around_.begin(), same) &&
                same(*last, around_.back()))
        << "written outside an array of " << size_;
    return {first, last};
  }

 private:
  int64_t Bytes() const {
    return static_cast<int64_t>(around_.size() * sizeof(T));
  }

  Device& device_;
  std::unique_ptr<Stream> stream_;
  int64_t offset_, size_;
  std::vector<T> around_;
  T* memory_ = nullptr;
};

// Bit for bit, which vectors' == is not.
template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() ||
         std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace delink::testing
