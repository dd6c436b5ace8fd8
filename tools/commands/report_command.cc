// `delink report`.
#include "framework/base/log.h"
#include "tools/commands/commands.h"
#include "tools/report/report.h"

namespace delink::tools {

int Run(const ReportCommand& command, const ModelList&, World& world) {
  const absl::Status alone = RequireOneProcess(world, "report");
  if (!alone.ok()) return Finish(world, alone);
  const auto said = WriteReport({.runs = command.runs, .out = command.out});
  if (!said.ok()) return Finish(world, said.status());
  for (const std::string& line : *said) DELINK_LOG(kWarning) << line;
  Print(command.out + "\n");
  return 0;
}

}  // namespace delink::tools
