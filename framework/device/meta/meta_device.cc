// A device that only counts: the planner runs real code on it and reads off
// what that code would have needed.
#include <atomic>

#include "framework/base/check.h"
#include "framework/device/backend.h"
#include "framework/device/cuda/scratch.h"

namespace delink {
namespace {

// Far from anything a process maps, so that a dereference faults.
constexpr uintptr_t kFirstAddress = uintptr_t{1} << 60;

class MetaEvent final : public Event {};

// Has what a stream of the imitated device has besides.
class MetaStream final : public Stream {
 public:
  MetaStream(int64_t bytes, std::atomic<int64_t>& overhead)
      : bytes_(bytes), overhead_(overhead) {}
  ~MetaStream() override { overhead_ -= taken_; }
  void Record(Event&) override {}
  void Wait(const Event&) override {}
  void Synchronize() override {}
  absl::Status Prepare() override {
    overhead_ += bytes_ - taken_;
    taken_ = bytes_;
    return absl::OkStatus();
  }

 private:
  const int64_t bytes_;
  int64_t taken_ = 0;
  std::atomic<int64_t>& overhead_;
};

class MetaDevice final : public Device {
 public:
  explicit MetaDevice(DeviceKind of)
      : kind_(IsCuda(of) ? DeviceKind::kMetaCuda : DeviceKind::kMeta) {}

  DeviceKind kind() const override { return kind_; }
  std::string name() const override { return ToString(kind_); }

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
  int64_t overhead() const override { return overhead_; }

  std::unique_ptr<Stream> NewStream() override {
    return std::make_unique<MetaStream>(
        kind_ == DeviceKind::kMetaCuda ? cuda::kScratchBytes : 0, overhead_);
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
  const DeviceKind kind_;
  std::atomic<int64_t> bytes_in_use_{0};
  std::atomic<int64_t> allocations_{0};
  std::atomic<int64_t> overhead_{0};
  std::atomic<uintptr_t> next_{kFirstAddress};
};

}  // namespace

std::unique_ptr<Device> NewMetaDevice(DeviceKind of) {
  return std::make_unique<MetaDevice>(of);
}

}  // namespace delink
