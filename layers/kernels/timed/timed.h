// A device that records when each of its kernels began and ended, and the work
// of the call. `delink bench` runs real steps on it. The kernels are those of
// the wrapped device, so a step has the same bits.
//
// On the CPU it reads the clock twice a call, some tens of nanoseconds. On CUDA
// it records two events around each call in its stream, which costs the device
// about a microsecond. Zeroing and copying memory of the device (FillZero,
// Copy, CopyRows) are recorded as the kernels "fill_zero" and "copy".
#pragma once

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/device/backend.h"
#include "layers/kernels/kernels.h"
#include "layers/kernels/work.h"

namespace delink {

struct TimedCall {
  Work work;
  // On the host. On an asynchronous device: when the call was enqueued.
  std::chrono::steady_clock::time_point begin, end;
  double seconds = 0;  // duration; on an asynchronous device set by Settle
};

// A point in the host's program, on an asynchronous device.
struct KernelMark {
  std::chrono::steady_clock::time_point at;
  double seconds = 0;  // device time from here to the next mark
};

// Any thread may add; read it only when no kernel runs.
class KernelCalls {
 public:
  // In the order in which calls ended, or were enqueued on an asynchronous
  // device.
  const std::vector<TimedCall>& calls() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return calls_;
  }
  const std::vector<KernelMark>& marks() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return marks_;
  }

  // Adds a mark to the stream that called a kernel last, if any. Does nothing
  // on a synchronous device, where the clock is enough.
  void Mark();
  // Waits for the device and sets the seconds of calls and marks.
  void Settle();
  void Clear();

 private:
  friend class TimedDevice;
  friend class TimedStream;
  struct Interval {
    std::unique_ptr<Event> begin, end;
  };

  void Add(const TimedCall& call) {
    const MutexLock lock(mutex_);
    calls_.push_back(call);
  }
  void Add(const TimedCall& call, Interval interval, Stream* stream) {
    const MutexLock lock(mutex_);
    calls_.push_back(call);
    intervals_.push_back(std::move(interval));
    stream_ = stream;
  }
  void Forget(const Stream* stream) {
    const MutexLock lock(mutex_);
    if (stream_ == stream) stream_ = nullptr;
  }

  Mutex mutex_;
  std::vector<TimedCall> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<KernelMark> marks_ ABSL_GUARDED_BY(mutex_);
  // For an asynchronous device: one interval a call, one event a mark.
  Device* device_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Stream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<Interval> intervals_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Event>> reached_ ABSL_GUARDED_BY(mutex_);
};

// `device` is the CPU's or CUDA's; `calls` must outlive it and its streams.
std::unique_ptr<Device> NewTimedDevice(std::unique_ptr<Device> device,
                                       KernelCalls& calls);

namespace timed {
// Only for streams of a timed device of the kind `device`. Null if the wrapped
// device has no table.
const Kernels* Table(DeviceKind device, DType dtype);
}  // namespace timed

}  // namespace delink
