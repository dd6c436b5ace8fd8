// When the instructions of training steps began and ended, as a host's thread
// saw it, and, on a device that works by itself, when that ran them: the host
// only enqueues them there (device_times.h).
//
// Of one rank; handed to every executor of a run in turn. Add may be called by
// several lanes at a time; what is kept is read when none is at work.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/step/instruction.h"

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
    // kSend, kRecv: of what goes to or comes from a stage; kFetch,
    // kEvict: of planes that go to or come from a copy; kStoreSlot, kLoadSlot:
    // of the slot. 0 where nothing is exchanged or updated.
    int64_t bytes = 0;
    // Of a visit's forward and backward, and of the forward that it repeats.
    double forward_flops = 0, backward_flops = 0, recompute_flops = 0;
  };

  struct Span {
    int64_t step = 0;
    int32_t program = 0;  // as AddProgram numbered it
    int32_t index = 0;    // of the instruction; -1: the batch comes (device)
    Clock::time_point begin, end;
  };

  // What an instruction of compute has exchanged in the middle of it, as its
  // thread saw it: with the wait for the other ranks.
  struct Exchange {
    int64_t step = 0;
    int32_t program = 0, index = 0;  // as Span's
    VisitExchange what;
    Clock::time_point begin, end;
  };

  // A step on the device, from the first that the host gave it to the last.
  struct DeviceStep {
    int64_t step = 0;
    Clock::time_point begin, end;
    // Seconds since the end of the step before; -1 where that was not traced.
    double idle_before = -1;
    // All times of the step may be later by up to so many seconds.
    double clock_error = 0;
  };

  // Keeps steps `first` to `last` of a run.
  Trace(int64_t first, int64_t last) : first_(first), last_(last) {}
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // By instruction, in program order. Not while a lane is at work.
  int32_t AddProgram(std::vector<Entry> entries);

  bool Wants(int64_t step) const { return first_ <= step && step <= last_; }
  void Add(const Span& span);
  void AddExchange(const Exchange& exchange);
  void AddOnDevice(const DeviceStep& step, const std::vector<Span>& spans);

  int64_t first() const { return first_; }
  int64_t last() const { return last_; }
  const std::vector<std::vector<Entry>>& programs() const { return programs_; }
  // When no lane is at work, as what follows: in the order in which they ended.
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
  const int64_t first_, last_;
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

// How a device spent the traced steps: seconds, on average over them.
struct DeviceUse {
  int64_t steps = 0;
  double step = 0;     // from the first work of a step to its last
  double between = 0;  // idle before it, since the step before
  double gaps = 0;     // idle in it: no instruction was at work
  // In instructions at whose end the host had given it nothing further yet: at
  // most so long it waited for the host in them.
  double behind_host = 0;
  double clock_error = 0;  // the largest
};
DeviceUse UseOf(const Trace& trace);

}  // namespace delink
