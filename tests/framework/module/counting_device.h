// A CPU device that counts copies between it and the host.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "framework/device/backend.h"

namespace delink::testing {

class CountingDevice : public Device {
 public:
  int to_host = 0, from_host = 0, copies = 0;

  DeviceKind kind() const override { return cpu_->kind(); }
  std::string name() const override { return cpu_->name(); }
  absl::StatusOr<void*> Allocate(int64_t bytes,
                                 std::string_view what) override {
    return cpu_->Allocate(bytes, what);
  }
  void Free(void* address, int64_t bytes) override {
    cpu_->Free(address, bytes);
  }
  std::unique_ptr<Stream> NewStream(std::string_view what) override {
    return cpu_->NewStream(what);
  }
  std::unique_ptr<Event> NewEvent() override { return cpu_->NewEvent(); }
  std::unique_ptr<Event> NewTimingEvent() override {
    return cpu_->NewTimingEvent();
  }
  double SecondsBetween(const Event& begin, const Event& end) override {
    return cpu_->SecondsBetween(begin, end);
  }
  void CopyFromHost(Stream& stream, void* device, const void* host,
                    int64_t bytes) override {
    ++from_host;
    cpu_->CopyFromHost(stream, device, host, bytes);
  }
  void CopyToHost(Stream& stream, void* host, const void* device,
                  int64_t bytes) override {
    ++to_host;
    cpu_->CopyToHost(stream, host, device, bytes);
  }
  void Copy(Stream& stream, void* to, const void* from,
            int64_t bytes) override {
    ++copies;
    cpu_->Copy(stream, to, from, bytes);
  }
  void CopyRows(Stream& stream, const RowsCopy& copy) override {
    ++copies;
    cpu_->CopyRows(stream, copy);
  }
  void FillZero(Stream& stream, void* to, int64_t bytes) override {
    cpu_->FillZero(stream, to, bytes);
  }

 private:
  std::unique_ptr<Device> cpu_ = NewCpuDevice();
};

}  // namespace delink::testing
