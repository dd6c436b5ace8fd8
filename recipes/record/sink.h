// Sinks record a run. Each sink gets every event and writes what its readers
// need. Recording does not change the run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "recipes/record/run_event.h"

namespace delink {

class Sink {
 public:
  virtual ~Sink() = default;
  // Called in the order of events. An error ends the run.
  virtual absl::Status Record(const RunEvent& event) = 0;
};

// Lines of the log (framework/base/log.h).
std::unique_ptr<Sink> NewLogSink();

// metrics.jsonl, the file `path`: one JSON object per line, written at once.
// Numbers read back bit for bit; a number that is not finite is null. Appends
// to the file. Before that it drops rows later than `step`, at which the run
// begins; a switch after `step` itself, because the checkpoint precedes it; and
// a last line that a crash cut short.
absl::StatusOr<std::unique_ptr<Sink>> OpenMetricsSink(const std::string& path,
                                                      int64_t step);

// A new TensorBoard event file (event_file.h) in `folder`, of a run that begins
// after `step` steps.
absl::StatusOr<std::unique_ptr<Sink>> OpenScalarsSink(const std::string& folder,
                                                      int64_t step);

// Progress on standard error. On a terminal it has a live line; every `every`
// steps, a permanent line is written, also to the log. A file or pipe gets only
// the permanent lines. Only rank 0 gets steps; the other ranks have this sink
// too, so that their log lines clear the live line.
std::unique_ptr<Sink> NewProgressSink(int64_t every);

}  // namespace delink
