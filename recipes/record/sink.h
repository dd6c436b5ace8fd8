// What records a run: each sink is told every event, and says of it what its
// readers want. None of it changes the run.
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
  // In the order in which they happen. An error ends the run.
  virtual absl::Status Record(const RunEvent& event) = 0;
};

// Lines of the log (framework/base/log.h).
std::unique_ptr<Sink> NewLogSink();

// metrics.jsonl, the file `path`: one JSON object a line, written as it
// happens. Numbers read back bit for bit; what is not finite is null. The file
// is appended to, after dropping the rows whose step is past `step`, where the
// run begins, a switch after `step` itself (the checkpoint is the one before
// it), and a last line that a crash cut short.
absl::StatusOr<std::unique_ptr<Sink>> OpenMetricsSink(const std::string& path,
                                                      int64_t step);

// A new TensorBoard event file (event_file.h) in `folder`, of a run that begins
// after `step` steps.
absl::StatusOr<std::unique_ptr<Sink>> OpenScalarsSink(const std::string& folder,
                                                      int64_t step);

// What a person sees of steps, on standard error: a live line on a terminal,
// and every `every` steps one that stays, also in the log; in a file or a pipe
// those alone. Rank 0 alone is told of steps; the others have one too, so that
// what they log clears the live line.
std::unique_ptr<Sink> NewProgressSink(int64_t every);

}  // namespace delink
