// `delink convert`.
#include <unistd.h>

#include <iostream>

#include "data/commands/progress_line.h"
#include "framework/base/status_macros.h"
#include "recipes/convert/convert.h"
#include "tools/commands/commands.h"

namespace delink::tools {
namespace {

absl::Status DoConvert(const ConvertOptions& command, const ModelList& models,
                       World& world) {
  DELINK_RETURN_IF_ERROR(RequireOneProcess(world, "convert"));
  ConvertOptions options = command;
  ProgressLine live(std::cerr, isatty(STDERR_FILENO) == 1);
  options.progress = [&live](int64_t done, int64_t all) {
    constexpr int64_t kBytes = sizeof(float);
    live({.phase = "converting", .done = kBytes * done, .total = kBytes * all});
  };
  const absl::StatusOr<std::string> report = Convert(options, models);
  live.EndPhase();
  if (report.ok()) Print(*report);
  return report.status();
}

}  // namespace

int Run(const ConvertOptions& command, const ModelList& models, World& world) {
  return Finish(world, DoConvert(command, models, world));
}

}  // namespace delink::tools
