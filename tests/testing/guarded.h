// A buffer for testing kernels: 64-byte aligned, poisoned with NaN (or, for
// integers, with a pattern) and with canaries in front and behind that are
// checked when it dies. Canaries are NaN too: who reads them, shows it.
//
// It lies in the host's memory, or where a ScopedGuardedMemory of the thread
// says, which a kernel of another device can read and the host as well.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>
#include <vector>

namespace delink::testing {

class GuardedMemory {
 public:
  virtual ~GuardedMemory() = default;
  virtual void* Allocate(int64_t bytes) = 0;  // 64-byte aligned
  virtual void Free(void* address) = 0;
  // Whether who reads or writes outside an allocation is caught anyway: then
  // there are no canaries, which would be inside.
  virtual bool checked() const { return false; }
};

class HostMemory final : public GuardedMemory {
 public:
  void* Allocate(int64_t bytes) override {
    return ::operator new[](static_cast<size_t>(bytes), std::align_val_t{64});
  }
  void Free(void* address) override {
    ::operator delete[](address, std::align_val_t{64});
  }
};

// Buffers that this thread makes while it lives are of `memory`, which must
// outlive them.
class ScopedGuardedMemory {
 public:
  explicit ScopedGuardedMemory(GuardedMemory& memory) : before_(Current()) {
    Current() = &memory;
  }
  ~ScopedGuardedMemory() { Current() = before_; }
  ScopedGuardedMemory(const ScopedGuardedMemory&) = delete;
  ScopedGuardedMemory& operator=(const ScopedGuardedMemory&) = delete;

  static GuardedMemory*& Current() {
    static HostMemory host;
    static thread_local GuardedMemory* current = &host;
    return current;
  }

 private:
  GuardedMemory* before_;
};

template <typename T>
class Guarded {
 public:
  explicit Guarded(int64_t size)
      : memory_(*ScopedGuardedMemory::Current()),
        guard_(memory_.checked() ? 0 : kGuard),
        size_(size),
        bytes_(static_cast<unsigned char*>(memory_.Allocate(Whole()))) {
    std::memset(bytes_, kCanary, static_cast<size_t>(Whole()));
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
    for (int64_t i = 0; i < guard_; ++i) ok_ = ok_ && bytes_[i] == kCanary;
    // What follows the last element, also inside its cache line.
    for (int64_t i = guard_ + Used(); i < Whole(); ++i) {
      ok_ = ok_ && bytes_[i] == kCanary;
    }
    EXPECT_TRUE(ok_) << "written outside a buffer of " << size_;
    memory_.Free(bytes_);
  }

  T* data() { return reinterpret_cast<T*>(bytes_ + guard_); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_ + guard_); }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }
  std::vector<T> values() const { return {data(), data() + size_}; }

  void Poison() {
    if constexpr (std::numeric_limits<T>::has_quiet_NaN) {
      std::fill_n(data(), size_, std::numeric_limits<T>::quiet_NaN());
    } else if constexpr (std::is_arithmetic_v<T>) {
      std::fill_n(data(), size_, static_cast<T>(-77));
    }
  }

 private:
  static constexpr int64_t kGuard = 256;
  static constexpr unsigned char kCanary = 0xFF;

  int64_t Used() const { return size_ * static_cast<int64_t>(sizeof(T)); }
  // All bytes; up to the end of a cache line, unless they are counted exactly.
  int64_t Whole() const {
    if (guard_ == 0) return Used();
    return guard_ + (Used() + 63) / 64 * 64 + guard_;
  }

  GuardedMemory& memory_;
  int64_t guard_;
  int64_t size_;
  unsigned char* bytes_;
  bool ok_ = true;
};

}  // namespace delink::testing
