// What libraries keep for a device as long as it lives: handles, and plans of
// the calls that were made. A library's own code is elsewhere
// (layers/kernels/cuda); here is only where it is kept, so that nothing of it
// is global.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>

namespace delink::cuda {

class Library {
 public:
  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  virtual ~Library() = default;
};

enum class LibrarySlot : uint8_t { kMatmul, kAttention };
inline constexpr int kLibrarySlots = 2;

// One for each device. Thread-safe.
class Libraries {
 public:
  // What is in the slot: made by `make` at the first call, while the device is
  // the thread's current one, and destroyed with the device. Every call for a
  // slot names the same type.
  template <typename T, typename Make>
  T& Get(LibrarySlot slot, Make make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Library>& library = libraries_[static_cast<size_t>(slot)];
    if (library == nullptr) library = make();
    return static_cast<T&>(*library);
  }

 private:
  std::mutex mutex_;
  std::array<std::unique_ptr<Library>, kLibrarySlots> libraries_;  // by mutex_
};

}  // namespace delink::cuda
