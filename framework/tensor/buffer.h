// Owned device memory.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "framework/base/status_macros.h"
#include "framework/device/backend.h"

namespace delink {

// Move-only; frees its bytes on the device, which must outlive it.
class Buffer {
 public:
  Buffer() = default;
  // `what`: Device::Allocate.
  static absl::StatusOr<Buffer> Allocate(Device& device, int64_t bytes,
                                         std::string_view what = "buffers") {
    DELINK_ASSIGN_OR_RETURN(void* const data, device.Allocate(bytes, what));
    return Buffer(&device, data, bytes);
  }
  ~Buffer() { Reset(); }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      Reset();
      device_ = std::exchange(other.device_, nullptr);
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }

  void* data() const { return data_; }
  // The address `offset` bytes in; device memory, not to be dereferenced.
  void* at(int64_t offset) const { return static_cast<char*>(data_) + offset; }
  int64_t bytes() const { return bytes_; }

 private:
  Buffer(Device* device, void* data, int64_t bytes)
      : device_(device), data_(data), bytes_(bytes) {}
  void Reset() {
    if (device_ != nullptr) device_->Free(data_, bytes_);
    device_ = nullptr;
  }

  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace delink
