#include "tools/main.h"

#include <poll.h>
#include <unistd.h>

#include <iostream>
#include <string>
#include <type_traits>
#include <variant>

#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "layers/kernels/cpu/spin.h"
#include "parallel/launch/launch.h"
#include "parallel/watch/signals.h"
#include "tools/commands/commands.h"
#include "tools/syntax/command_line.h"

namespace delink {
namespace {

bool NobodyReads(int descriptor) {
  pollfd state = {.fd = descriptor};
  return poll(&state, 1, 0) == 1 && (state.revents & POLLERR) != 0;
}

// The exit code of a command that would end with `code`, had all that it
// printed been written. A pipe that is no more read ends it as it ends other
// programs.
int Written(int code) {
  if (std::cout.flush()) return code;
  if (NobodyReads(STDOUT_FILENO)) EndOfBrokenPipe();
  DELINK_LOG(kError) << "standard output: not all of it could be written; is "
                        "the disk full?";
  return code == 0 ? tools::kExitFailure : code;
}

}  // namespace

int Main(int argc, char** argv, ModelList models) {
  cpu::SpinBriefly(argv);
  LetWritesFail();
  absl::StatusOr<World> world = StartWorld(&argc, &argv);
  if (!world.ok()) {
    std::cerr << "delink: " << Printable(std::string(world.status().message()))
              << "\n";
    return tools::kExitFailure;
  }
  SetLogRank(world->rank());
  const tools::CommandLine line = tools::ParseCommandLine(argc, argv);
  if (!line.command) {
    if (world->rank() == 0) {
      (line.exit_code == 0 ? std::cout : std::cerr) << Printable(line.text);
    }
    return Written(line.exit_code);
  }
  return Written(std::visit(
      [&](const auto& command) { return tools::Run(command, models, *world); },
      *line.command));
}

}  // namespace delink
