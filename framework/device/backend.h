// The porter's contract: what a kind of device must do to run Delink.
//
// A device hands out memory, streams and events, and copies bytes. It knows no
// kernels: these are tables of functions (layers/kernels).
//
// Asynchrony: the work of a call that takes a Stream runs after all earlier
// work of that stream. The call may return before its work is done. A backend
// whose streams run synchronously (cpu, meta) satisfies this trivially.
// Memory: host code never dereferences what Allocate returned, whatever the
// device; it moves bytes with CopyToHost and CopyFromHost only.
// Threads: Device is thread-safe; a Stream or an Event belongs to one thread at
// a time.
// Errors: running out of memory is a Status; any other failure of the device is
// fatal and says which call failed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/device/ledger.h"

namespace delink {

class WorkNotes;

// kMeta and kMetaCuda stand in for the CPU and for a CUDA device: they compute
// nothing and only measure. kTimedCpu and kTimedCuda are the device itself,
// with the time of each kernel recorded (layers/kernels/timed).
enum class DeviceKind : uint8_t {
  kCpu,
  kMeta,
  kCuda,
  kTimedCpu,
  kMetaCuda,
  kTimedCuda
};

const char* ToString(DeviceKind kind);

constexpr bool IsMeta(DeviceKind kind) {
  return kind == DeviceKind::kMeta || kind == DeviceKind::kMetaCuda;
}
// Whether it is the CUDA device, or measures in its place.
constexpr bool IsCuda(DeviceKind kind) {
  return kind == DeviceKind::kCuda || kind == DeviceKind::kMetaCuda ||
         kind == DeviceKind::kTimedCuda;
}

// Every address that Allocate returns, and every offset that our planners
// choose, is a multiple of this many bytes.
inline constexpr int64_t kAlignment = 256;

constexpr int64_t AlignUp(int64_t bytes, int64_t alignment = kAlignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
};

class Stream {
 public:
  virtual ~Stream() = default;
  // The event stands for all work given to this stream so far.
  virtual void Record(Event& event) = 0;
  // Later work of this stream waits for the event.
  virtual void Wait(const Event& event) = 0;
  // Blocks the host until all work given so far is done.
  virtual void Synchronize() = 0;
  // Blocks the host only until the event, which this stream has recorded. All
  // CopyToHost calls before the event have then delivered their bytes.
  virtual void SynchronizeWith(const Event& event) = 0;
  // Whether the event is reached; never blocks. If true, the same holds as
  // after SynchronizeWith.
  virtual bool Reached(const Event& event) = 0;
  // Allocates now the device memory that kernels on this stream need
  // (overhead). Otherwise the first kernel allocates it, and running out of
  // memory is then fatal.
  virtual absl::Status Prepare() { return absl::OkStatus(); }
  // The stream that does the work, if this one only wraps it
  // (layers/kernels/timed). Events and copies are the same on both.
  virtual Stream& underlying() { return *this; }
  // Collects the work of calls to a meta device (work.h); null on others.
  virtual WorkNotes* notes() { return nullptr; }
};

// In bytes; 0 if the device does not tell.
struct DeviceMemory {
  int64_t total = 0;
  int64_t free = 0;   // now, as the driver counts, for all processes together
  int64_t cache = 0;  // the largest
  // What Delink holds of the device, for Allocate and for overhead, unused pool
  // memory included; and the most so far.
  int64_t held = 0, most_held = 0;
};

// Memory taken from a device, and pinned memory of its host.
struct DeviceLedgers {
  MemoryLedger allocated;  // what Allocate has handed out
  // All else: streams, the driver and libraries, and programs that were there
  // before.
  MemoryLedger own;
  MemoryLedger pinned;
};

// A copy between matrices whose rows have different distances: `rows` rows of
// `bytes`, which begin `to_pitch` and `from_pitch` (at least `bytes`) apart.
struct RowsCopy {
  void* to = nullptr;
  int64_t to_pitch = 0;
  const void* from = nullptr;
  int64_t from_pitch = 0;
  int64_t bytes = 0;
  int64_t rows = 0;

  bool contiguous() const { return to_pitch == bytes && from_pitch == bytes; }
};

// Memory of the host, with the function that frees it.
using HostMemory = std::unique_ptr<void, std::function<void(void*)>>;

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;
  virtual DeviceMemory memory() const { return {}; }

  // `bytes` of memory for `what` (ledger.h), not initialised; ResourceExhausted
  // names the size asked for, the memory there is or the limit, and what holds
  // it.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes,
                                         std::string_view what) = 0;
  // From here on Allocate fails if ledgers().allocated would exceed `bytes`.
  // Without a value, as at first, only the device's memory limits it. Memory
  // handed out before stays, even if it exceeds the limit. The device's
  // overhead does not count. A meta device refuses nothing.
  virtual void SetLimit(std::optional<int64_t> bytes) {
    limit_ = bytes.value_or(kNoLimit);
  }
  virtual void Free(void* address, int64_t bytes) = 0;
  // Pinned memory of the host, not initialised. Copies of any size from and to
  // it do not make the host wait: the stream reads or writes it when it reaches
  // the copy. If the system grants no pinned memory, this is other memory, and
  // copies may wait. Free it before the device, and only when no copy uses it
  // any more.
  virtual HostMemory AllocateHost(int64_t bytes, std::string_view what);
  // Returns to the driver all freed memory that the device still holds. Call it
  // before large allocations of other sizes.
  virtual void Trim() {}
  virtual const DeviceLedgers& ledgers() const { return ledgers_; }
  // In bytes, and the number of calls of Allocate so far: tests hold the memory
  // account against all three.
  int64_t bytes_in_use() const { return ledgers().allocated.bytes(); }
  int64_t allocations() const { return ledgers().allocated.takes(); }
  int64_t overhead() const { return ledgers().own.bytes(); }

  // `what` it is for is shown by tools and by the ledger.
  virtual std::unique_ptr<Stream> NewStream(std::string_view what) = 0;
  std::unique_ptr<Stream> NewStream() { return NewStream("copies"); }
  virtual std::unique_ptr<Event> NewEvent() = 0;
  // An event that also notes when it is reached, for measurements.
  virtual std::unique_ptr<Event> NewTimingEvent() = 0;
  // Between two timing events that were recorded; waits for both.
  virtual double SecondsBetween(const Event& begin, const Event& end) = 0;

  // Host memory of an asynchronous copy must live until the stream is done. The
  // bytes of CopyToHost have arrived after the stream's Synchronize(With).
  // Small copies (to the host up to 64 KiB, from the host up to 4 MiB) do not
  // make the host wait.
  virtual void CopyFromHost(Stream& stream, void* device, const void* host,
                            int64_t bytes) = 0;
  virtual void CopyToHost(Stream& stream, void* host, const void* device,
                          int64_t bytes) = 0;
  virtual void Copy(Stream& stream, void* to, const void* from,
                    int64_t bytes) = 0;
  // As one copy; `to` and `from` do not overlap.
  virtual void CopyRows(Stream& stream, const RowsCopy& copy) = 0;
  virtual void FillZero(Stream& stream, void* to, int64_t bytes) = 0;

 protected:
  // For Allocate: enters memory that the backend has found into the ledger, if
  // the limit allows it.
  absl::Status TakeWithinLimit(const void* address, int64_t bytes,
                               std::string_view what);

  DeviceLedgers ledgers_;

 private:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  std::atomic<int64_t> limit_ = kNoLimit;
};

std::unique_ptr<Device> NewCpuDevice();
// Stands in for a device of the kind `of` and measures the work given to it. It
// allocates nothing and computes nothing; its addresses are distinct and must
// not be dereferenced.
std::unique_ptr<Device> NewMetaDevice(DeviceKind of = DeviceKind::kCpu);
// Unavailable: this build has no CUDA or this machine no CUDA device. NotFound:
// no device has that number. FailedPrecondition: the driver is too old, or no
// kernels are compiled for the device.
absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(int ordinal);
// How many there are, at least one; errors as above. Takes no memory of them.
absl::StatusOr<int> CountCudaDevices();

}  // namespace delink
