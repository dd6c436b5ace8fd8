#include "framework/step/time/trace.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "framework/base/at.h"

namespace delink {
namespace {

using Clock = Trace::Clock;

// The device has caught up with the host if it is done with an instruction no
// later than this after the host had enqueued it: the time that an event takes.
constexpr std::chrono::microseconds kReach{20};

// Of [begin, end], what no span covers; `spans` is sorted by begin.
double GapsIn(const Trace::DeviceStep& step,
              const std::vector<Trace::Span>& spans) {
  Clock::duration gaps{0};
  Clock::time_point covered = step.begin;
  for (const Trace::Span& span : spans) {
    if (span.begin > covered) gaps += span.begin - covered;
    covered = std::max(covered, span.end);
  }
  if (step.end > covered) gaps += step.end - covered;
  return Seconds(gaps);
}

}  // namespace

int32_t Trace::AddProgram(std::vector<Entry> entries) {
  programs_.push_back(std::move(entries));
  return static_cast<int32_t>(programs_.size()) - 1;
}

void Trace::Add(const Span& span) {
  const MutexLock lock(mutex_);
  spans_.push_back(span);
}

void Trace::AddExchange(const Exchange& exchange) {
  const MutexLock lock(mutex_);
  exchanges_.push_back(exchange);
}

void Trace::AddOnDevice(const DeviceStep& step,
                        const std::vector<Span>& spans) {
  const MutexLock lock(mutex_);
  device_steps_.push_back(step);
  device_spans_.insert(device_spans_.end(), spans.begin(), spans.end());
}

void Trace::Keep(int64_t first, int64_t last) {
  first_ = first;
  last_ = last;
  spans_.clear();
  exchanges_.clear();
  device_spans_.clear();
  device_steps_.clear();
}

std::array<double, kLanes> BusyLanes(const Trace& trace) {
  std::array<double, kLanes> busy{};
  std::set<int64_t> steps;
  const bool on_device = !trace.device_spans().empty();
  for (const Trace::Span& span :
       on_device ? trace.device_spans() : trace.spans()) {
    if (span.index < 0) continue;
    const Instruction& at =
        At(At(trace.programs(), span.program), span.index).at;
    At(busy, at.lane) += Seconds(span.end - span.begin);
    steps.insert(span.step);
  }
  for (double& seconds : busy) {
    seconds /= std::max(1.0, static_cast<double>(steps.size()));
  }
  return busy;
}

DeviceUse UseOf(const Trace& trace) {
  DeviceUse use;
  std::map<std::pair<int64_t, int32_t>, Clock::time_point> enqueued;
  for (const Trace::Span& span : trace.spans()) {
    enqueued[{span.step, span.index}] = span.end;
  }
  std::map<int64_t, std::vector<Trace::Span>> spans;
  for (const Trace::Span& span : trace.device_spans()) {
    spans[span.step].push_back(span);
    const auto host = enqueued.find({span.step, span.index});
    if (host != enqueued.end() && span.end < host->second + kReach) {
      use.behind_host += Seconds(span.end - span.begin);
    }
  }
  int64_t pairs = 0;
  for (const Trace::DeviceStep& step : trace.device_steps()) {
    std::vector<Trace::Span>& of_step = spans[step.step];
    std::sort(of_step.begin(), of_step.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    ++use.steps;
    use.step += Seconds(step.end - step.begin);
    use.gaps += GapsIn(step, of_step);
    use.clock_error = std::max(use.clock_error, step.clock_error);
    if (step.idle_before < 0) continue;
    use.between += step.idle_before;
    ++pairs;
  }
  const auto mean = [](double* sum, int64_t count) {
    if (count > 0) *sum /= static_cast<double>(count);
  };
  for (double* const sum : {&use.step, &use.gaps, &use.behind_host}) {
    mean(sum, use.steps);
  }
  mean(&use.between, pairs);
  return use;
}

}  // namespace delink
