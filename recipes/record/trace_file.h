// `delink train --trace`: the instructions of some steps of a run, of all
// ranks, in Chrome's trace event format (JSON; Perfetto and chrome://tracing
// open it). docs/cli.md says what is in it.
//
// One file for all ranks: a rank is a process, a lane a thread, and what of it
// ran on a device another one. `otherData` has for each rank how its device
// spent the steps (null on the CPU). Times are microseconds since the run's
// start. Ranks on one machine have one clock, so theirs are exact against each
// other; those of different machines begin to count when they leave one
// barrier, and agree to within what that takes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/step/executor.h"
#include "framework/step/trace.h"
#include "parallel/launch/launch.h"

namespace delink {

// Steps `first` to `last`; first = 0: the first `last` steps that a call makes.
struct TraceSteps {
  int64_t first = 0;
  int64_t last = 10;
};

// "10", "5:8".
absl::StatusOr<TraceSteps> ParseTraceSteps(std::string_view text);

class TraceFile {
 public:
  // Whether `path` can be written, before anything else is: makes its folder
  // and, unless there is one, an empty file. InvalidArgument.
  static absl::Status Check(const std::string& path);

  // For a run that begins after step `done`. Collective: here times begin.
  // Nothing, with a warning, where all of `steps` are done already. `world`
  // must outlive the file.
  static absl::StatusOr<std::unique_ptr<TraceFile>> Create(
      const std::string& path, const TraceSteps& steps, int64_t done,
      World& world);

  Trace* trace() { return &trace_; }

  // After step `step` of the run. Writes the file once the last of its steps is
  // done, or the run `ends`; until then what `path` holds is as it was. That it
  // cannot be written is logged. Collective.
  absl::Status OnStep(Executor& executor, int64_t step, bool ends);

 private:
  TraceFile(std::string path, const TraceSteps& steps, World& world)
      : path_(std::move(path)),
        trace_(steps.first, steps.last),
        world_(&world) {}
  std::string Events() const;

  std::string path_;
  Trace trace_;
  World* world_;
  Trace::Clock::time_point start_;
  bool written_ = false;
};

}  // namespace delink
