// When the instructions of training steps began and ended, as the host's
// threads saw it. The host only enqueues work for an asynchronous device, so
// the trace then also has the times at which the device ran it
// (device_times.h).
//
// A trace is of one rank; the executors of a run use it in turn. Several lanes
// may call Add at a time; results are read when no lane is at work.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/step/program/instruction.h"

namespace delink {

class Trace {
 public:
  using Clock = std::chrono::steady_clock;

  // What is known of an instruction before it runs, for one rank.
  struct Entry {
    Instruction at;
    std::string name;  // "B(3,a) of blocks/2"
    std::string of;    // the layer's or the slab's name, where there is one
    // kReduce: of gradients that the ranks combine; kGather: of weights
    // that they bring together; kSquares: of gradients that this rank reads;
    // kUpdate: of weights that it updates; kNorm: of sums that they add up;
    // kSend, kRecv: of the tensor; kFetch, kEvict: of the planes; kStoreSlot,
    // kLoadSlot: of the slot. 0: nothing is exchanged, copied or updated.
    int64_t bytes = 0;
    // Of a visit's forward and backward, and of the forward that it repeats.
    double forward_flops = 0, backward_flops = 0, recompute_flops = 0;
  };

  struct Span {
    int64_t step = 0;
    int32_t program = 0;  // as AddProgram numbered it
    int32_t index = 0;    // of the instruction; -1: the batch's copy (device)
    Clock::time_point begin, end;
  };

  // An exchange in the middle of a compute instruction, as its thread saw it:
  // when it was posted, and the wait for its end, which includes that for the
  // other ranks. Between both the thread may have done other work.
  struct Exchange {
    int64_t step = 0;
    int32_t program = 0, index = 0;  // as Span's
    VisitExchange what;
    Clock::time_point posted, begin, end;
  };

  // A step on the device, from its first work to its last.
  struct DeviceStep {
    int64_t step = 0;
    Clock::time_point begin, end;
    // Seconds since the end of the step before; -1 where that was not traced.
    double idle_before = -1;
    // The step's true times may be later by up to so many seconds.
    double clock_error = 0;
  };

  // Keeps steps `first` to `last` of a run; none if `last` is before `first`.
  Trace(int64_t first, int64_t last) : first_(first), last_(last) {}
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // By instruction, in program order. Not while a lane is at work.
  int32_t AddProgram(std::vector<Entry> entries);

  // Forgets all steps, and keeps these from now on. Only when no lane is at
  // work.
  void Keep(int64_t first, int64_t last) ABSL_NO_THREAD_SAFETY_ANALYSIS;

  bool Wants(int64_t step) const { return first_ <= step && step <= last_; }
  void Add(const Span& span);
  void AddExchange(const Exchange& exchange);
  void AddOnDevice(const DeviceStep& step, const std::vector<Span>& spans);

  int64_t first() const { return first_; }
  int64_t last() const { return last_; }
  const std::vector<std::vector<Entry>>& programs() const { return programs_; }
  // In the order in which they ended. Like the functions below, only when no
  // lane is at work.
  const std::vector<Span>& spans() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return spans_;
  }
  const std::vector<Exchange>& exchanges() const
      ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return exchanges_;
  }
  // Empty where the device is the host. By step and index.
  const std::vector<Span>& device_spans() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return device_spans_;
  }
  const std::vector<DeviceStep>& device_steps() const
      ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return device_steps_;
  }

 private:
  int64_t first_, last_;
  std::vector<std::vector<Entry>> programs_;
  Mutex mutex_;
  std::vector<Span> spans_ ABSL_GUARDED_BY(mutex_);
  std::vector<Exchange> exchanges_ ABSL_GUARDED_BY(mutex_);
  std::vector<Span> device_spans_ ABSL_GUARDED_BY(mutex_);
  std::vector<DeviceStep> device_steps_ ABSL_GUARDED_BY(mutex_);
};

inline double Seconds(Trace::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Seconds for which each lane was at work, on average over the traced steps; on
// the device if it is not the host. Exchanges include the wait for other ranks.
std::array<double, kLanes> BusyLanes(const Trace& trace);

// How a device spent the traced steps: seconds, on average over them.
struct DeviceUse {
  int64_t steps = 0;
  double step = 0;     // from the first work of a step to its last
  double between = 0;  // idle before it, since the step before
  double gaps = 0;     // idle in it: no instruction was at work
  // In instructions that ended before the host had enqueued more: the device
  // waited for the host in them for at most so long.
  double behind_host = 0;
  double clock_error = 0;  // the largest
};
DeviceUse UseOf(const Trace& trace);

}  // namespace delink
