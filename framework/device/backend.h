// The porter's contract: what a kind of device must do to run Delink.
//
// A device hands out memory, streams and events, and copies bytes. Kernels are
// not its business: they come as tables of functions (layers/kernels).
//
// Asynchrony: everything that takes a Stream is ordered after what was given to
// that stream before, and may return before it is done. A backend whose streams
// run synchronously (cpu, meta) satisfies this trivially.
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

// kMeta and kMetaCuda: nothing is computed, only measured, in place of the CPU
// and of a CUDA device. kTimedCpu and kTimedCuda: the device, noting what its
// kernels take (layers/kernels/timed).
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
  // Blocks it only until the event, which this stream has recorded. What
  // CopyToHost was given is there then, all of it before the event.
  virtual void SynchronizeWith(const Event& event) = 0;
  // Whether that event is reached, without blocking; where it is, all is as
  // after SynchronizeWith.
  virtual bool Reached(const Event& event) = 0;
  // Takes now what kernels on this stream need of the device (its overhead), so
  // that nothing is taken later; else the first kernel takes it, for which
  // running out of memory is fatal.
  virtual absl::Status Prepare() { return absl::OkStatus(); }
  // The stream that does the work, where this one only looks on
  // (layers/kernels/timed); events and copies are the same by either.
  virtual Stream& underlying() { return *this; }
};

// In bytes; 0 where a device does not say.
struct DeviceMemory {
  int64_t total = 0;
  int64_t free = 0;   // now, as the driver counts, for all processes together
  int64_t cache = 0;  // the largest
  // What the device holds of it for Allocate and for itself, also what nobody
  // has at the moment; and the most so far.
  int64_t held = 0, most_held = 0;
};

// What is taken of a device and, pinned, of its host.
struct DeviceLedgers {
  MemoryLedger allocated;  // what Allocate has handed out
  // What is taken besides: by streams, by the driver and libraries, and by
  // whoever was there before us.
  MemoryLedger own;
  MemoryLedger pinned;
};

// Of matrices that lie in other rows on either side: `rows` rows of `bytes`,
// `to_pitch` and `from_pitch` bytes apart, at least `bytes`.
struct RowsCopy {
  void* to = nullptr;
  int64_t to_pitch = 0;
  const void* from = nullptr;
  int64_t from_pitch = 0;
  int64_t bytes = 0;
  int64_t rows = 0;

  bool contiguous() const { return to_pitch == bytes && from_pitch == bytes; }
};

// The host's, and how it is given back.
using HostMemory = std::unique_ptr<void, std::function<void(void*)>>;

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;
  virtual DeviceMemory memory() const { return {}; }

  // `bytes` of memory for `what` (ledger.h), not initialised; ResourceExhausted
  // with what was asked for, what there is, or the limit, and what has it.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes,
                                         std::string_view what) = 0;
  // From here on Allocate refuses what would have it hand out more than `bytes`
  // at a time, as ledgers().allocated counts; none, as at first: than there is.
  // What it has handed out stays, were it more. What the device takes for
  // itself is not held against it. A meta device refuses nothing.
  virtual void SetLimit(std::optional<int64_t> bytes) {
    limit_ = bytes.value_or(kNoLimit);
  }
  virtual void Free(void* address, int64_t bytes) = 0;
  // Memory of the host, pinned, so that copies of any size do not make the host
  // wait, and are in the stream's order alone: read from it and written to it
  // when the stream gets there. If the system grants none, other memory, and
  // copies may wait. Not initialised. It goes before the device, and when
  // nobody copies from or to it any more.
  virtual HostMemory AllocateHost(int64_t bytes, std::string_view what);
  // Gives back to the driver what was freed and is held for others to come:
  // before much is asked for that is cut otherwise.
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

  // Host memory of an asynchronous copy must live until the stream is done, and
  // what CopyToHost brings is there after the stream's Synchronize(With). Small
  // copies (64 KiB to, 4 MiB from the host) make no backend wait.
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
  // For Allocate: the ledger has memory that the backend has found, where the
  // limit allows it.
  absl::Status TakeWithinLimit(const void* address, int64_t bytes,
                               std::string_view what);

  DeviceLedgers ledgers_;

 private:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  std::atomic<int64_t> limit_ = kNoLimit;
};

std::unique_ptr<Device> NewCpuDevice();
// Allocates nothing and computes nothing; its addresses are distinct and must
// not be dereferenced. What runs on it is measured, not done, in place of a
// device of the kind `of`.
std::unique_ptr<Device> NewMetaDevice(DeviceKind of = DeviceKind::kCpu);
// Unavailable: this build or this machine has no CUDA device. NotFound: none of
// that number. FailedPrecondition: a driver that is too old, or a device that
// there are no kernels for.
absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(int ordinal);
// How many there are, at least one; errors as above. Takes nothing of them.
absl::StatusOr<int> CountCudaDevices();

}  // namespace delink
