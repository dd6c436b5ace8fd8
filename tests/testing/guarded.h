// A buffer for testing kernels: 64-byte aligned, poisoned with NaN (or, for
// integers, with a pattern) and with canaries in front and behind that are
// checked when it dies.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

namespace delink::testing {

template <typename T>
class Guarded {
 public:
  explicit Guarded(int64_t size)
      : size_(size),
        bytes_(static_cast<unsigned char*>(
            ::operator new[](kGuard + Body() + kGuard, std::align_val_t{64}))) {
    std::memset(bytes_, kCanary, kGuard + Body() + kGuard);
    Poison();
  }
  explicit Guarded(const std::vector<T>& values)
      : Guarded(static_cast<int64_t>(values.size())) {
    std::copy(values.begin(), values.end(), data());
  }
  Guarded(const Guarded& other) : Guarded(other.values()) {}
  // Copies the values; the sizes must be the same.
  Guarded& operator=(const Guarded& other) {
    EXPECT_EQ(size_, other.size_);
    std::copy_n(other.data(), std::min(size_, other.size_), data());
    return *this;
  }
  ~Guarded() {
    for (int64_t i = 0; i < kGuard; ++i) {
      ok_ = ok_ && bytes_[i] == kCanary;
    }
    // What follows the last element, also inside its cache line.
    for (int64_t i = kGuard + Used(); i < kGuard + Body() + kGuard; ++i) {
      ok_ = ok_ && bytes_[i] == kCanary;
    }
    EXPECT_TRUE(ok_) << "written outside a buffer of " << size_;
    ::operator delete[](bytes_, std::align_val_t{64});
  }

  T* data() { return reinterpret_cast<T*>(bytes_ + kGuard); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_ + kGuard); }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }
  std::vector<T> values() const { return {data(), data() + size_}; }

  void Poison() {
    T poison = static_cast<T>(-77);
    if constexpr (std::numeric_limits<T>::has_quiet_NaN) {
      poison = std::numeric_limits<T>::quiet_NaN();
    }
    for (int64_t i = 0; i < size_; ++i) data()[i] = poison;
  }

 private:
  static constexpr int64_t kGuard = 256;
  static constexpr unsigned char kCanary = 0xA5;

  int64_t Used() const { return size_ * static_cast<int64_t>(sizeof(T)); }
  int64_t Body() const { return (Used() + 63) / 64 * 64; }

  int64_t size_;
  unsigned char* bytes_;
  bool ok_ = true;
};

}  // namespace delink::testing
