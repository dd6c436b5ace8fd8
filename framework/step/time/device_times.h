// When an asynchronous device ran the instructions of traced steps: timing
// events around each of them in its stream, and at the step's start and end.
//
// The events are made once. Those of a step are read after the next step is
// enqueued, while the device works on it, or at Settle. So the device does not
// wait.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/device/backend.h"
#include "framework/step/time/trace.h"

namespace delink {

class DeviceTimes {
 public:
  // `program`: as Trace::AddProgram numbered it. `device` and `trace` must
  // outlive this.
  DeviceTimes(Device& device, Trace& trace, int32_t program);

  // Called by the thread that drives the steps. BeginStep: before anything of
  // the step is enqueued; Loaded: behind its batch; Result: behind the result
  // that the host waits for; EndStep: behind the whole step; Waited: when the
  // host has waited for Result.
  void BeginStep(int64_t step, Stream& compute);
  void Loaded(Stream& compute);
  void Result(Stream& compute);
  void EndStep(Stream& compute);
  void Waited();
  // When all lanes are drained: adds the remaining times to the trace.
  void Settle();

  // Called by the instruction's lane, around the work that it enqueues.
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
