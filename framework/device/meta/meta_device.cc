// A device that only counts: the planner runs real code on it and reads off
// what that code would have needed.
#include <atomic>

#include "framework/base/check.h"
#include "framework/device/backend.h"

namespace delink {
namespace {

// Far from anything a process maps, so that a dereference faults.
constexpr uintptr_t kFirstAddress = uintptr_t{1} << 60;

class MetaEvent final : public Event {};

class MetaStream final : public Stream {
 public:
  void Record(Event&) override {}
  void Wait(const Event&) override {}
  void Synchronize() override {}
};

class MetaDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kMeta; }
  std::string name() const override { return "meta"; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    DELINK_CHECK_GE(bytes, 0);
    bytes_in_use_ += bytes;
    ++allocations_;
    const uintptr_t at =
        next_.fetch_add(static_cast<uintptr_t>(AlignUp(bytes + 1)));
    return reinterpret_cast<void*>(at);
  }
  void Free(void*, int64_t bytes) override { bytes_in_use_ -= bytes; }
  int64_t bytes_in_use() const override { return bytes_in_use_; }
  int64_t allocations() const override { return allocations_; }

  std::unique_ptr<Stream> NewStream() override {
    return std::make_unique<MetaStream>();
  }
  std::unique_ptr<Event> NewEvent() override {
    return std::make_unique<MetaEvent>();
  }
  std::unique_ptr<Event> NewTimingEvent() override { return NewEvent(); }
  double SecondsBetween(const Event&, const Event&) override { return 0; }

  void CopyFromHost(Stream&, void*, const void*, int64_t) override {}
  void CopyToHost(Stream&, void*, const void*, int64_t) override {}
  void Copy(Stream&, void*, const void*, int64_t) override {}
  void FillZero(Stream&, void*, int64_t) override {}

 private:
  std::atomic<int64_t> bytes_in_use_{0};
  std::atomic<int64_t> allocations_{0};
  std::atomic<uintptr_t> next_{kFirstAddress};
};

}  // namespace

std::unique_ptr<Device> NewMetaDevice() {
  return std::make_unique<MetaDevice>();
}

}  // namespace delink
