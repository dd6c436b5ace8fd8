#include "layers/kernels/timed/timed.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "framework/base/check.h"
#include "layers/kernels/find_kernels.h"
#include "layers/kernels/wrap.h"

namespace delink {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void KernelCalls::Mark() {
  const MutexLock lock(mutex_);
  if (stream_ == nullptr) return;
  marks_.push_back({.at = Clock::now()});
  reached_.push_back(device_->NewTimingEvent());
  stream_->Record(*reached_.back());
}

void KernelCalls::Settle() {
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < intervals_.size(); ++i) {
    calls_[i].seconds =
        device_->SecondsBetween(*intervals_[i].begin, *intervals_[i].end);
  }
  for (size_t i = 0; i + 1 < reached_.size(); ++i) {
    marks_[i].seconds = device_->SecondsBetween(*reached_[i], *reached_[i + 1]);
  }
}

void KernelCalls::Clear() {
  const MutexLock lock(mutex_);
  calls_.clear();
  marks_.clear();
  intervals_.clear();
  reached_.clear();
}

class TimedStream final : public Stream {
 public:
  // `device`: null if the host's clock can time a call.
  TimedStream(std::unique_ptr<Stream> stream, KernelCalls& calls,
              Device* device)
      : stream_(std::move(stream)), calls_(calls), device_(device) {}
  ~TimedStream() override { calls_.Forget(this); }
  void Record(Event& event) override { stream_->Record(event); }
  void Wait(const Event& event) override { stream_->Wait(event); }
  void Synchronize() override { stream_->Synchronize(); }
  void SynchronizeWith(const Event& event) override {
    stream_->SynchronizeWith(event);
  }
  bool Reached(const Event& event) override { return stream_->Reached(event); }
  absl::Status Prepare() override { return stream_->Prepare(); }
  Stream& underlying() override { return *stream_; }

  // Records a call, which `run` makes on the stream that it is given.
  template <typename Run>
  void Note(const Work& work, Run run) {
    if (device_ == nullptr) {
      const Clock::time_point begin = Clock::now();
      run(*stream_);
      const Clock::time_point end = Clock::now();
      calls_.Add(
          {.work = work,
           .begin = begin,
           .end = end,
           .seconds = std::chrono::duration<double>(end - begin).count()});
      return;
    }
    KernelCalls::Interval interval{device_->NewTimingEvent(),
                                   device_->NewTimingEvent()};
    const Clock::time_point begin = Clock::now();
    stream_->Record(*interval.begin);
    run(*stream_);
    stream_->Record(*interval.end);
    calls_.Add({.work = work, .begin = begin, .end = Clock::now()},
               std::move(interval), this);
  }

 private:
  std::unique_ptr<Stream> stream_;
  KernelCalls& calls_;
  Device* const device_;
};

class TimedDevice final : public Device {
 public:
  TimedDevice(std::unique_ptr<Device> device, KernelCalls& calls)
      : device_(std::move(device)), calls_(calls) {
    const MutexLock lock(calls_.mutex_);
    calls_.device_ = device_.get();
  }
  ~TimedDevice() override { calls_.Clear(); }
  DeviceKind kind() const override {
    return asynchronous() ? DeviceKind::kTimedCuda : DeviceKind::kTimedCpu;
  }
  std::string name() const override { return device_->name(); }
  DeviceMemory memory() const override { return device_->memory(); }
  absl::StatusOr<void*> Allocate(int64_t bytes,
                                 std::string_view what) override {
    return device_->Allocate(bytes, what);
  }
  void SetLimit(std::optional<int64_t> bytes) override {
    device_->SetLimit(bytes);
  }
  void Free(void* address, int64_t bytes) override {
    device_->Free(address, bytes);
  }
  HostMemory AllocateHost(int64_t bytes, std::string_view what) override {
    return device_->AllocateHost(bytes, what);
  }
  void Trim() override { device_->Trim(); }
  const DeviceLedgers& ledgers() const override { return device_->ledgers(); }
  std::unique_ptr<Stream> NewStream(std::string_view what) override {
    return std::make_unique<TimedStream>(
        device_->NewStream(what), calls_,
        asynchronous() ? device_.get() : nullptr);
  }
  std::unique_ptr<Event> NewEvent() override { return device_->NewEvent(); }
  std::unique_ptr<Event> NewTimingEvent() override {
    return device_->NewTimingEvent();
  }
  double SecondsBetween(const Event& begin, const Event& end) override {
    return device_->SecondsBetween(begin, end);
  }
  void CopyFromHost(Stream& stream, void* device, const void* host,
                    int64_t bytes) override {
    device_->CopyFromHost(stream.underlying(), device, host, bytes);
  }
  void CopyToHost(Stream& stream, void* host, const void* device,
                  int64_t bytes) override {
    device_->CopyToHost(stream.underlying(), host, device, bytes);
  }
  void Copy(Stream& stream, void* to, const void* from,
            int64_t bytes) override {
    if (bytes == 0) return;
    static_cast<TimedStream&>(stream).Note(
        WorkOfCopy(bytes),
        [&](Stream& inner) { device_->Copy(inner, to, from, bytes); });
  }
  void CopyRows(Stream& stream, const RowsCopy& copy) override {
    if (copy.bytes * copy.rows == 0) return;
    static_cast<TimedStream&>(stream).Note(
        WorkOfCopy(copy.bytes * copy.rows),
        [&](Stream& inner) { device_->CopyRows(inner, copy); });
  }
  void FillZero(Stream& stream, void* to, int64_t bytes) override {
    if (bytes == 0) return;
    static_cast<TimedStream&>(stream).Note(
        WorkOfZeroing(bytes),
        [&](Stream& inner) { device_->FillZero(inner, to, bytes); });
  }

 private:
  bool asynchronous() const { return device_->kind() == DeviceKind::kCuda; }

  std::unique_ptr<Device> device_;
  KernelCalls& calls_;
};

namespace {

// Records the calls of a device's table of `kType`.
template <DeviceKind kDevice, DType kType>
struct Noted {
  template <auto kEntry, typename Args>
  static void Call(Stream& stream, const Args& args) {
    static const Kernels& kTable = *FindKernels(kDevice, kType);
    static_cast<TimedStream&>(stream).Note(
        WorkOf(args, kType),
        [&](Stream& inner) { (kTable.*kEntry)(inner, args); });
  }
};

template <DeviceKind kDevice, DType kType>
const Kernels* TableOf() {
  const Kernels* const table = FindKernels(kDevice, kType);
  if (table == nullptr) return nullptr;
  static const Kernels kTable = WrapKernels<Noted<kDevice, kType>>(*table);
  return &kTable;
}

template <DeviceKind kDevice>
const Kernels* TableOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return TableOf<kDevice, DType::kF32>();
    case DType::kF64:
      return TableOf<kDevice, DType::kF64>();
    case DType::kBF16:
      return TableOf<kDevice, DType::kBF16>();
    default:
      return nullptr;
  }
}

}  // namespace

std::unique_ptr<Device> NewTimedDevice(std::unique_ptr<Device> device,
                                       KernelCalls& calls) {
  DELINK_CHECK(device->kind() == DeviceKind::kCpu ||
               device->kind() == DeviceKind::kCuda);
  return std::make_unique<TimedDevice>(std::move(device), calls);
}

const Kernels* timed::Table(DeviceKind device, DType dtype) {
  return device == DeviceKind::kTimedCuda ? TableOf<DeviceKind::kCuda>(dtype)
                                          : TableOf<DeviceKind::kCpu>(dtype);
}

}  // namespace delink
