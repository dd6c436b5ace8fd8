#include "recipes/record/trace_file.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/at.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

using Json = nlohmann::ordered_json;

// Between the track of a lane and that of the same on the device.
constexpr int kOnDevice = 100;

bool StepNumber(std::string_view text, int64_t* value) {
  return absl::SimpleAtoi(absl::string_view(text.data(), text.size()), value) &&
         *value > 0;
}

Json Metadata(int rank, const char* what, Json args) {
  return {{"name", what},
          {"ph", "M"},
          {"pid", rank},
          {"tid", 0},
          {"args", std::move(args)}};
}

double Microseconds(Trace::Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

Json ArgsOf(const Trace::Span& span, const Trace::Entry& entry) {
  const Instruction& at = entry.at;
  Json args = {{"step", span.step}, {"instruction", span.index}};
  if (span.index < 0) return {{"step", span.step}};
  const bool moves = at.op == Op::kSend || at.op == Op::kRecv ||
                     at.op == Op::kStoreSlot || at.op == Op::kLoadSlot;
  const bool computes = at.layer >= 0 && !moves;
  if (at.layer >= 0) {
    args["layer"] = entry.of;
    args["micro_batch"] = at.micro_batch;
  }
  if (computes) {
    args["flops"] =
        entry.forward_flops + entry.backward_flops + entry.recompute_flops;
  } else {
    args["bytes"] = entry.bytes;
  }
  if (at.slab >= 0) args["slab"] = entry.of;
  const std::pair<const char*, double> flops[] = {
      {"forward_flops", entry.forward_flops},
      {"backward_flops", entry.backward_flops},
      {"recompute_flops", entry.recompute_flops}};
  for (const auto& [name, value] : flops) {
    if (value > 0) args[name] = value;
  }
  return args;
}

// Stands for the copy of the batch to the device.
const Trace::Entry& BatchEntry() {
  static const Trace::Entry kEntry{.name = "batch"};
  return kEntry;
}

// Microseconds of a step; null where the device is the host.
Json ToJson(const DeviceUse& use) {
  if (use.steps == 0) return nullptr;
  constexpr double kMicro = 1e6;
  return {{"steps", use.steps},
          {"step_us", kMicro * use.step},
          {"idle_between_steps_us", kMicro * use.between},
          {"idle_in_step_us", kMicro * use.gaps},
          {"behind_host_us", kMicro * use.behind_host},
          {"clock_error_us", kMicro * use.clock_error}};
}

std::string ToText(const DeviceUse& use) {
  if (use.steps == 0) return "";
  return absl::StrFormat(
      "; in a step of %.2f ms the device was idle for %.3f ms, and for %.3f ms "
      "before it; within instructions it waited for the host for at most %.2f "
      "ms",
      1e3 * use.step, 1e3 * use.gaps, 1e3 * use.between, 1e3 * use.behind_host);
}

}  // namespace

absl::StatusOr<TraceSteps> ParseTraceSteps(std::string_view text) {
  TraceSteps steps;
  const size_t colon = text.find(':');
  const bool range = colon != std::string_view::npos;
  const bool good = range
                        ? StepNumber(text.substr(0, colon), &steps.first) &&
                              StepNumber(text.substr(colon + 1), &steps.last) &&
                              steps.first <= steps.last
                        : StepNumber(text, &steps.last);
  if (good) return steps;
  return absl::InvalidArgumentError(
      absl::StrCat("'", absl::string_view(text.data(), text.size()),
                   "' names no steps; give a number of steps, or the first and "
                   "last step as 5:8"));
}

absl::Status TraceFile::Check(const std::string& path) {
  std::error_code error;
  if (PathExists(path) && !std::filesystem::is_regular_file(path, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--trace: ", path, " is not a file; choose another"));
  }
  absl::Status status = MakeDirectories(ParentPath(path));
  if (status.ok()) {
    // Keeps an existing trace until there is a new one.
    errno = 0;
    const std::ofstream file(path, std::ios::app);
    if (file) return absl::OkStatus();
    status = FileError(errno, path, "open for writing");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--trace: ", status.message()));
}

absl::StatusOr<std::unique_ptr<TraceFile>> TraceFile::Create(
    const std::string& path, const TraceSteps& steps, int64_t done,
    World& world) {
  TraceSteps exact = steps;
  if (steps.first == 0) {
    const int64_t most = std::numeric_limits<int64_t>::max() - done;
    exact = {.first = done + 1, .last = done + std::min(steps.last, most)};
  }
  if (exact.last <= done) {
    if (world.rank() == 0) {
      DELINK_LOG(kWarning) << "--trace-steps " << exact.first << ":"
                           << exact.last << ": the run resumes after step "
                           << done << ", so no trace is written";
    }
    return std::unique_ptr<TraceFile>();
  }
  std::unique_ptr<TraceFile> file(new TraceFile(path, exact, world));
  DELINK_RETURN_IF_ERROR(Barrier(world.comm()));
  int64_t start = Trace::Clock::now().time_since_epoch().count();
  DELINK_RETURN_IF_ERROR(
      world.local().Broadcast(&start, 1, DType::kI64, 0)->Wait());
  file->start_ = Trace::Clock::time_point(Trace::Clock::duration(start));
  return file;
}

std::string TraceEvents(const Trace& trace, int rank, std::string_view host,
                        Trace::Clock::time_point start) {
  std::string text = JsonText(Metadata(
      rank, "process_name",
      {{"name", absl::StrCat("rank ", rank, " on ", std::string(host))}}));
  const auto add = [&](const Json& event) {
    absl::StrAppend(&text, ",\n", JsonText(event));
  };
  add(Metadata(rank, "process_sort_index", {{"sort_index", rank}}));
  std::set<int> tracks;
  const auto add_all = [&](const std::vector<Trace::Span>& spans,
                           bool on_device) {
    for (const Trace::Span& span : spans) {
      const Trace::Entry& entry =
          span.index < 0 ? BatchEntry()
                         : At(At(trace.programs(), span.program), span.index);
      const Lane lane = entry.at.lane;
      const int track = static_cast<int>(lane) + (on_device ? kOnDevice : 0);
      if (tracks.insert(track).second) {
        Json name = Metadata(
            rank, "thread_name",
            {{"name", absl::StrCat(ToString(lane),
                                   on_device ? " on the device" : "")}});
        name["tid"] = track;
        add(name);
      }
      add({{"name", entry.name},
           {"cat", span.index < 0 ? "Batch" : ToString(entry.at.op)},
           {"ph", "X"},
           {"pid", rank},
           {"tid", track},
           {"ts", Microseconds(span.begin - start)},
           {"dur", Microseconds(span.end - span.begin)},
           {"args", ArgsOf(span, entry)}});
    }
  };
  add_all(trace.spans(), false);
  // Within those of compute.
  for (const Trace::Exchange& exchange : trace.exchanges()) {
    const Trace::Entry& entry =
        At(At(trace.programs(), exchange.program), exchange.index);
    add({{"name", absl::StrCat(entry.name, ": ", ToString(exchange.what))},
         {"cat", "Exchange"},
         {"ph", "X"},
         {"pid", rank},
         {"tid", static_cast<int>(Lane::kCompute)},
         {"ts", Microseconds(exchange.begin - start)},
         {"dur", Microseconds(exchange.end - exchange.begin)},
         {"args",
          {{"step", exchange.step},
           {"bytes", exchange.what.bytes},
           {"posted", Microseconds(exchange.posted - start)}}}});
  }
  add_all(trace.device_spans(), true);
  return text;
}

absl::Status TraceFile::OnStep(Executor& executor, int64_t step, bool ends) {
  if (written_ || (step < trace_.last() && !ends)) return absl::OkStatus();
  DELINK_RETURN_IF_ERROR(executor.Drain());
  written_ = true;
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  const DeviceUse use = UseOf(trace_);
  const std::string mine = TraceEvents(trace_, world_->rank(), world_->host(),
                                       start_),
                    my_use = JsonText(ToJson(use));
  std::string uses;
  for (int rank = 0; rank < world_->size(); ++rank) {
    DELINK_ASSIGN_OR_RETURN(const std::string events,
                            BroadcastString(world_->comm(), mine, rank));
    DELINK_ASSIGN_OR_RETURN(const std::string its_use,
                            BroadcastString(world_->comm(), my_use, rank));
    if (world_->rank() != 0) continue;
    absl::StrAppend(&text, rank > 0 ? ",\n" : "", events);
    absl::StrAppend(&uses, rank > 0 ? ", " : "", its_use);
  }
  if (world_->rank() != 0) return absl::OkStatus();
  // A failure of the trace does not end the run.
  const absl::Status status = WriteFile(
      path_,
      absl::StrCat(text, "\n], \"otherData\": {\"device\": [", uses, "]}}\n"));
  if (status.ok()) {
    DELINK_LOG(kInfo) << "trace of steps " << trace_.first() << " to "
                      << std::min(step, trace_.last()) << ": " << path_
                      << ToText(use);
  } else {
    DELINK_LOG(kError) << "--trace: " << std::string(status.message());
  }
  return absl::OkStatus();
}

}  // namespace delink
