// `delink train --trace`: the instructions of some steps of a run, of all
// ranks, in Chrome's trace event format (JSON; Perfetto and chrome://tracing
// open it). docs/cli.md says what is in it.
//
// One file for all ranks: a rank is a process, a lane is a thread, and its work
// on a device is another thread. `otherData` has for each rank how its device
// spent the steps (null on the CPU). Times are microseconds since the run's
// start. Ranks on one machine share a clock, so their times compare exactly.
// Clocks of different machines start at a barrier and agree to within its
// duration.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/step/engine/executor.h"
#include "framework/step/time/trace.h"
#include "parallel/launch/launch.h"

namespace delink {

// Steps `first` to `last`; first = 0: the first `last` steps of a command.
struct TraceSteps {
  int64_t first = 0;
  int64_t last = 10;
};

// "10", "5:8".
absl::StatusOr<TraceSteps> ParseTraceSteps(std::string_view text);

// A rank's events, one per line, separated by commas. Times are since `start`.
std::string TraceEvents(const Trace& trace, int rank, std::string_view host,
                        Trace::Clock::time_point start);

class TraceFile {
 public:
  // Checks early that `path` can be written: makes its folder and, if there is
  // no file, an empty file. InvalidArgument: it cannot.
  static absl::Status Check(const std::string& path);

  // For a run that begins after step `done`. Times start at this call. Null,
  // with a warning, if all of `steps` are done already. `world` must outlive
  // the file. Collective.
  static absl::StatusOr<std::unique_ptr<TraceFile>> Create(
      const std::string& path, const TraceSteps& steps, int64_t done,
      World& world);

  Trace* trace() { return &trace_; }

  // After step `step` of the run. Writes the file once the last of its steps is
  // done, or the run `ends`; until then the file at `path` is unchanged. A
  // failure to write is logged. Collective.
  absl::Status OnStep(Executor& executor, int64_t step, bool ends);

 private:
  TraceFile(std::string path, const TraceSteps& steps, World& world)
      : path_(std::move(path)),
        trace_(steps.first, steps.last),
        world_(&world) {}

  std::string path_;
  Trace trace_;
  World* world_;
  Trace::Clock::time_point start_;
  bool written_ = false;
};

}  // namespace delink
