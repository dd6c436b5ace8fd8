// A device that notes when each of its kernels began and ended, and what there
// was to do: for `delink bench`, which runs real steps on it. The kernels are
// those of the device it is made of, so a step has the same bits.
//
// On the CPU it reads the clock twice a call, some tens of nanoseconds; on CUDA
// two events stand around each call in its stream, which take the device about
// a microsecond. Zeroing memory (Device::FillZero) is noted as the kernel
// "fill_zero".
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

struct KernelCall {
  Work work;
  // As the host saw it: on an asynchronous device, when it was enqueued.
  std::chrono::steady_clock::time_point begin, end;
  double seconds = 0;  // that it took; of an asynchronous device after Settle
};

// Where the host stood, on a device that does not wait for it.
struct KernelMark {
  std::chrono::steady_clock::time_point at;
  double seconds = 0;  // that the device took from here to the next mark
};

// Added to by any thread; read when none is at work.
class KernelCalls {
 public:
  // When none is at work: in the order in which they ended, or were enqueued.
  const std::vector<KernelCall>& calls() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return calls_;
  }
  const std::vector<KernelMark>& marks() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return marks_;
  }

  // Notes that the host is here: in the stream that called a kernel last, if
  // any. Nothing on a synchronous device, where the clock says all.
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

  void Add(const KernelCall& call) {
    const MutexLock lock(mutex_);
    calls_.push_back(call);
  }
  void Add(const KernelCall& call, Interval interval, Stream* stream) {
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
  std::vector<KernelCall> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<KernelMark> marks_ ABSL_GUARDED_BY(mutex_);
  // Of an asynchronous device, for each call and for each mark.
  Device* device_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Stream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<Interval> intervals_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Event>> reached_ ABSL_GUARDED_BY(mutex_);
};

// `device` is the CPU's or CUDA's; `calls` must outlive it and its streams.
std::unique_ptr<Device> NewTimedDevice(std::unique_ptr<Device> device,
                                       KernelCalls& calls);

namespace timed {
// For streams of a timed device of the kind `device` only. Null where the
// device that it is made of has no table.
const Kernels* Table(DeviceKind device, DType dtype);
}  // namespace timed

}  // namespace delink
