// `delink bench`.
#include <fstream>
#include <iostream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "tools/bench/bench.h"
#include "tools/bench/compare.h"
#include "tools/commands/commands.h"

namespace delink::tools {
namespace {

constexpr char kStandardOutput[] = "-";

std::optional<std::string> Given(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional<std::string>(text);
}

std::optional<int64_t> Given(int64_t number) {
  return number == 0 ? std::nullopt : std::optional<int64_t>(number);
}

bench::BenchOptions OptionsOf(const BenchCommand& c, int threads) {
  return {.ops = c.suite != "step",
          .steps = c.suite != "ops",
          .device = c.device == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu,
          .shapes = c.shapes,
          .threads = threads,
          .scratch = c.scratch,
          .quick = c.quick,
          .seq = Given(c.seq),
          .batch = Given(c.batch),
          .share = Given(c.share),
          .precision = Given(c.precision),
          .recompute = Given(c.recompute),
          .depth = Given(c.depth),
          .sets = c.sets,
          .repetitions = c.steps};
}

// Before minutes are spent on what cannot be kept. Nothing of a file that is
// there is lost.
absl::Status CheckWritable(const std::string& path) {
  if (path.empty() || path == kStandardOutput) return absl::OkStatus();
  if (std::ofstream(path, std::ios::app)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--json: ", path,
                   " cannot be written; name a file in a folder that is there "
                   "and yours"));
}

absl::Status Measure(const BenchCommand& command, const ModelList& models,
                     World& world) {
  std::optional<bench::BenchReport> before;
  if (!command.compare.empty()) {
    DELINK_ASSIGN_OR_RETURN(const std::string text, ReadFile(command.compare));
    DELINK_ASSIGN_OR_RETURN(before, bench::ReadReport(text, command.compare));
  }
  DELINK_RETURN_IF_ERROR(CheckWritable(command.json));
  DELINK_ASSIGN_OR_RETURN(const int threads, UseCores(world, command.threads));
  DELINK_ASSIGN_OR_RETURN(const bench::BenchReport report,
                          bench::RunBench(OptionsOf(command, threads), models,
                                          [](const std::string& what) {
                                            DELINK_LOG(kInfo) << what;
                                          }));
  if (command.json == kStandardOutput) {
    Print(bench::ToJson(report));
  } else {
    Print(bench::ToText(report));
    if (!command.json.empty()) {
      DELINK_RETURN_IF_ERROR(WriteFile(command.json, bench::ToJson(report)));
    }
  }
  if (before) {
    const std::string compared = absl::StrCat(
        "\n", bench::ToText(bench::Compare(*before, report), *before, report));
    // Standard output is JSON's alone.
    if (command.json == kStandardOutput) {
      std::cerr << compared << std::flush;
    } else {
      Print(compared);
    }
  }
  return absl::OkStatus();
}

}  // namespace

int Run(const BenchCommand& command, const ModelList& models, World& world) {
  const absl::Status alone = RequireOneProcess(world, "bench");
  return Finish(world, alone.ok() ? Measure(command, models, world) : alone);
}

}  // namespace delink::tools
