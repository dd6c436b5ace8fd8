// A device that only counts: the planner runs real code on it and reads off the
// memory that the code would need.
#include <atomic>
#include <string>
#include <utility>

#include "framework/base/check.h"
#include "framework/device/backend.h"
#include "framework/device/cuda/scratch.h"
#include "framework/device/work.h"

namespace delink {
namespace {

// Far from anything a process maps, so that a dereference faults.
constexpr uintptr_t kFirstAddress = uintptr_t{1} << 60;

class MetaEvent final : public Event {};

// Accounts for the overhead of a stream of the imitated device, and notes
// calls.
class MetaStream final : public Stream {
 public:
  MetaStream(int64_t bytes, std::string name, MemoryLedger& own)
      : bytes_(bytes), name_(std::move(name)), own_(own) {}
  ~MetaStream() override {
    if (taken_) own_.Give(this);
  }
  void Record(Event&) override {}
  void Wait(const Event&) override {}
  void Synchronize() override {}
  void SynchronizeWith(const Event&) override {}
  bool Reached(const Event&) override { return true; }
  absl::Status Prepare() override {
    if (!taken_) own_.Take(this, bytes_, name_);
    taken_ = true;
    return absl::OkStatus();
  }

  WorkNotes* notes() override { return &notes_; }

 private:
  WorkNotes notes_;
  const int64_t bytes_;
  const std::string name_;
  MemoryLedger& own_;
  bool taken_ = false;
};

class MetaDevice final : public Device {
 public:
  explicit MetaDevice(DeviceKind of)
      : kind_(IsCuda(of) ? DeviceKind::kMetaCuda : DeviceKind::kMeta) {}

  DeviceKind kind() const override { return kind_; }
  std::string name() const override { return ToString(kind_); }

  absl::StatusOr<void*> Allocate(int64_t bytes,
                                 std::string_view what) override {
    DELINK_CHECK_GE(bytes, 0);
    const uintptr_t at =
        next_.fetch_add(static_cast<uintptr_t>(AlignUp(bytes + 1)));
    void* const address = reinterpret_cast<void*>(at);
    ledgers_.allocated.Take(address, bytes, what);
    return address;
  }
  void Free(void* address, int64_t) override {
    ledgers_.allocated.Give(address);
  }

  std::unique_ptr<Stream> NewStream(std::string_view what) override {
    return std::make_unique<MetaStream>(
        kind_ == DeviceKind::kMetaCuda ? cuda::kScratchBytes : 0,
        cuda::ScratchName(what), ledgers_.own);
  }
  std::unique_ptr<Event> NewEvent() override {
    return std::make_unique<MetaEvent>();
  }
  std::unique_ptr<Event> NewTimingEvent() override { return NewEvent(); }
  double SecondsBetween(const Event&, const Event&) override { return 0; }

  void CopyFromHost(Stream&, void*, const void*, int64_t) override {}
  void CopyToHost(Stream&, void*, const void*, int64_t) override {}
  void Copy(Stream& stream, void*, const void*, int64_t bytes) override {
    if (bytes > 0) stream.notes()->Add(WorkOfCopy(bytes));
  }
  void CopyRows(Stream& stream, const RowsCopy& copy) override {
    if (copy.bytes * copy.rows > 0) {
      stream.notes()->Add(WorkOfCopy(copy.bytes * copy.rows));
    }
  }
  void FillZero(Stream& stream, void*, int64_t bytes) override {
    if (bytes > 0) stream.notes()->Add(WorkOfZeroing(bytes));
  }

 private:
  const DeviceKind kind_;
  std::atomic<uintptr_t> next_{kFirstAddress};
};

}  // namespace

std::unique_ptr<Device> NewMetaDevice(DeviceKind of) {
  return std::make_unique<MetaDevice>(of);
}

}  // namespace delink
