// The CPU as a device: streams run synchronously on the thread that calls.
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/device/backend.h"
#include "framework/device/huge_pages.h"

namespace delink {
namespace {

using Clock = std::chrono::steady_clock;

class CpuEvent final : public Event {};

struct CpuTimingEvent final : Event {
  Clock::time_point reached;
};

class CpuStream final : public Stream {
 public:
  void Record(Event& event) override {
    auto* const timing = dynamic_cast<CpuTimingEvent*>(&event);
    if (timing != nullptr) timing->reached = Clock::now();
  }
  void Wait(const Event&) override {}
  void Synchronize() override {}
  void SynchronizeWith(const Event&) override {}
  bool Reached(const Event&) override { return true; }
};

class CpuDevice final : public Device {
 public:
  ~CpuDevice() override {
    DELINK_CHECK_EQ(bytes_in_use(), 0) << "device memory was not freed";
  }

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string name() const override { return "cpu"; }

  absl::StatusOr<void*> Allocate(int64_t bytes,
                                 std::string_view what) override {
    DELINK_CHECK_GE(bytes, 0);
    void* const address = AllocateInHugePages(bytes > 0 ? bytes : 1);
    if (address == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "out of memory: asked for ", bytes, " bytes for ",
          absl::string_view(what.data(), what.size()), " with ", bytes_in_use(),
          " in use: ", ledgers_.allocated.ToString()));
    }
    const absl::Status taken = TakeWithinLimit(address, bytes, what);
    if (taken.ok()) return address;
    std::free(address);
    return taken;
  }

  void Free(void* address, int64_t) override {
    ledgers_.allocated.Give(address);
    std::free(address);
  }

  std::unique_ptr<Stream> NewStream(std::string_view) override {
    return std::make_unique<CpuStream>();
  }
  std::unique_ptr<Event> NewEvent() override {
    return std::make_unique<CpuEvent>();
  }
  std::unique_ptr<Event> NewTimingEvent() override {
    return std::make_unique<CpuTimingEvent>();
  }
  double SecondsBetween(const Event& begin, const Event& end) override {
    const auto reached = [](const Event& event) {
      return dynamic_cast<const CpuTimingEvent&>(event).reached;
    };
    return std::chrono::duration<double>(reached(end) - reached(begin)).count();
  }

  void CopyFromHost(Stream&, void* device, const void* host,
                    int64_t bytes) override {
    Move(device, host, bytes);
  }
  void CopyToHost(Stream&, void* host, const void* device,
                  int64_t bytes) override {
    Move(host, device, bytes);
  }
  void Copy(Stream&, void* to, const void* from, int64_t bytes) override {
    Move(to, from, bytes);
  }
  void CopyRows(Stream&, const RowsCopy& copy) override {
    if (copy.contiguous()) {
      return Move(copy.to, copy.from, copy.bytes * copy.rows);
    }
    for (int64_t row = 0; row < copy.rows; ++row) {
      Move(static_cast<char*>(copy.to) + row * copy.to_pitch,
           static_cast<const char*>(copy.from) + row * copy.from_pitch,
           copy.bytes);
    }
  }
  void FillZero(Stream&, void* to, int64_t bytes) override {
    if (bytes > 0) std::memset(to, 0, static_cast<size_t>(bytes));
  }

 private:
  static void Move(void* to, const void* from, int64_t bytes) {
    if (bytes > 0 && to != from) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    }
  }
};

}  // namespace

std::unique_ptr<Device> NewCpuDevice() { return std::make_unique<CpuDevice>(); }

}  // namespace delink
