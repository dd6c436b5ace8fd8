#include "framework/step/time/device_times.h"

#include <algorithm>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"

namespace delink {
namespace {

Trace::Clock::duration Duration(double seconds) {
  return std::chrono::duration_cast<Trace::Clock::duration>(
      std::chrono::duration<double>(seconds));
}

}  // namespace

DeviceTimes::DeviceTimes(Device& device, Trace& trace, int32_t program)
    : device_(device), trace_(trace), program_(program) {
  const size_t count = At(trace.programs(), program).size();
  for (Step& step : steps_) {
    step.start = device.NewTimingEvent();
    step.loaded = device.NewTimingEvent();
    step.result = device.NewTimingEvent();
    step.end = device.NewTimingEvent();
    for (size_t i = 0; i < count; ++i) {
      step.instructions.push_back(
          {.begin = device.NewTimingEvent(), .end = device.NewTimingEvent()});
    }
  }
}

void DeviceTimes::BeginStep(int64_t number, Stream& compute) {
  now_ = &StepOf(number);
  now_->number = number;
  now_->idle_before = -1;
  now_->begun = Trace::Clock::now();
  compute.Record(*now_->start);
}

void DeviceTimes::Loaded(Stream& compute) { compute.Record(*now_->loaded); }

void DeviceTimes::Result(Stream& compute) { compute.Record(*now_->result); }

void DeviceTimes::EndStep(Stream& compute) {
  compute.Record(*now_->end);
  Read(StepOf(now_->number - 1));
}

void DeviceTimes::Waited() {
  now_->waited = Trace::Clock::now();
  now_->unread = true;
  const Step& before = StepOf(now_->number - 1);
  if (before.number == now_->number - 1) {
    now_->idle_before = device_.SecondsBetween(*before.end, *now_->start);
  }
}

// No lane is two steps late: the next step waits for all that it does in this
// one, if only to overwrite memory that it reads, such as the slot of a kSend.
void DeviceTimes::Begin(int32_t index, int64_t step, Stream& stream) {
  DELINK_CHECK_EQ(StepOf(step).number, step);
  Instruction& at = At(StepOf(step).instructions, index);
  at.enqueued = Trace::Clock::now();
  stream.Record(*at.begin);
}

void DeviceTimes::End(int32_t index, int64_t step, Stream& stream) {
  DELINK_CHECK_EQ(StepOf(step).number, step);
  stream.Record(*At(StepOf(step).instructions, index).end);
}

void DeviceTimes::Settle() {
  if (now_ == nullptr) return;
  Read(StepOf(now_->number + 1));
  Read(*now_);
}

void DeviceTimes::Read(Step& step) {
  if (!step.unread) return;
  step.unread = false;
  const auto since_start = [&](const Event& event) {
    return Duration(device_.SecondsBetween(*step.start, event));
  };
  // Relative to the step's start until that is known. The start is the earliest
  // with which nothing begins on the device before the host has enqueued it.
  std::vector<Trace::Clock::duration> begins;
  Trace::Clock::time_point start = step.begun;
  for (const Instruction& at : step.instructions) {
    begins.push_back(since_start(*at.begin));
    start = std::max(start, at.enqueued - begins.back());
  }
  const auto at = [&](const Event& event) {
    return start + since_start(event);
  };
  const Trace::DeviceStep whole{
      .step = step.number,
      .begin = start,
      .end = at(*step.end),
      .idle_before = step.idle_before,
      .clock_error = std::max(0.0, Seconds(step.waited - at(*step.result)))};
  std::vector<Trace::Span> spans = {{.step = step.number,
                                     .program = program_,
                                     .index = -1,
                                     .begin = start,
                                     .end = at(*step.loaded)}};
  for (size_t i = 0; i < step.instructions.size(); ++i) {
    spans.push_back({.step = step.number,
                     .program = program_,
                     .index = static_cast<int32_t>(i),
                     .begin = start + begins[i],
                     .end = at(*step.instructions[i].end)});
  }
  trace_.AddOnDevice(whole, spans);
}

}  // namespace delink
