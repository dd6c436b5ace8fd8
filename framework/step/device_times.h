// When an asynchronous device ran the instructions of traced steps: timing
// events around each of them in its stream, and at the step's start and end.
//
// The events are made once. Those of a step are read when the next one has been
// enqueued, while the device is at work on it, or at Settle: the device does
// not wait for that.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/device/backend.h"
#include "framework/step/trace.h"

namespace delink {

class DeviceTimes {
 public:
  // Of a program of the trace, as AddProgram numbered it. `device` and `trace`
  // must outlive this.
  DeviceTimes(Device& device, Trace& trace, int32_t program);

  // By the thread that drives the steps. BeginStep: before anything of the step
  // is enqueued; Loaded: behind its batch; Result: behind what the host waits
  // for; EndStep: behind all of it; Waited: the host has waited for Result.
  void BeginStep(int64_t step, Stream& compute);
  void Loaded(Stream& compute);
  void Result(Stream& compute);
  void EndStep(Stream& compute);
  void Waited();
  // All lanes are drained: the trace gets what it has not got yet.
  void Settle();

  // By the instruction's lane, around what it enqueues.
  void Begin(int32_t index, int64_t step, Stream& stream);
  void End(int32_t index, int64_t step, Stream& stream);

 private:
  struct Instruction {
    std::unique_ptr<Event> begin, end;
    Trace::Clock::time_point enqueued;
  };
  struct Step {
    int64_t number = -1;
    bool unread = false;
    std::unique_ptr<Event> start, loaded, result, end;
    Trace::Clock::time_point begun, waited;
    double idle_before = -1;  // as Trace::DeviceStep's
    std::vector<Instruction> instructions;
  };
  void Read(Step& step);
  Step& StepOf(int64_t number) { return steps_[number % 2]; }

  Device& device_;
  Trace& trace_;
  const int32_t program_;
  Step steps_[2];
  Step* now_ = nullptr;
};

}  // namespace delink
