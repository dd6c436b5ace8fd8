#include "recipes/run/dry_run/simulated_trace.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/file.h"
#include "recipes/record/trace_file.h"

namespace delink {
namespace {

using Clock = Trace::Clock;

Clock::time_point At(double seconds) {
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(seconds)));
}

}  // namespace

SimulatedTrace::SimulatedTrace(std::string path)
    : path_(std::move(path)), file_(path_, std::ios::trunc) {
  file_ << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
}

absl::StatusOr<std::unique_ptr<SimulatedTrace>> SimulatedTrace::Create(
    const std::string& path) {
  errno = 0;
  auto trace = absl::WrapUnique(new SimulatedTrace(path));
  if (trace->file_) return trace;
  return absl::InvalidArgumentError(absl::StrCat(
      "--trace-out: ", FileError(errno, path, "open for writing").message()));
}

void SimulatedTrace::Add(
    const std::vector<Column>& columns, const JointTimes& times,
    const std::vector<const std::vector<Trace::Entry>*>& entries,
    int64_t step) {
  const size_t stages = columns.front().size();
  double end = 0;
  for (size_t r = 0; r < times.first.size(); ++r) {
    const RankProgram& rank = columns[r / stages][r % stages];
    Trace trace(step, step + 1);
    trace.AddProgram(*entries[r % stages]);
    for (const Intervals* const of : {&times.first, &times.second}) {
      const int64_t number = of == &times.first ? step : step + 1;
      for (size_t i = 0; i < (*of)[r].size(); ++i) {
        const Interval& one = (*of)[r][i];
        end = std::max(end, one.end);
        trace.Add({.step = number,
                   .index = static_cast<int32_t>(i),
                   .begin = At(begin_ + one.begin),
                   .end = At(begin_ + one.end)});
      }
    }
    file_ << (any_ ? ",\n" : "")
          << TraceEvents(trace, rank.rank, "a simulated machine",
                         Clock::time_point());
    any_ = true;
  }
  begin_ += end;
}

absl::Status SimulatedTrace::Finish() {
  errno = 0;
  file_ << "\n], \"otherData\": {\"simulated\": true}}\n";
  file_.close();
  if (file_) return absl::OkStatus();
  return FileError(errno, path_, "write");
}

}  // namespace delink
