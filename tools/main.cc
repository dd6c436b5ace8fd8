#include "tools/main.h"

#include <iostream>
#include <string>
#include <type_traits>
#include <variant>

#include "framework/base/log.h"
#include "layers/kernels/cpu/spin.h"
#include "parallel/launch.h"
#include "tools/command_line.h"
#include "tools/commands.h"

namespace delink {

int Main(int argc, char** argv, ModelList models) {
  cpu::SpinBriefly(argv);
  absl::StatusOr<World> world = StartWorld(&argc, &argv);
  if (!world.ok()) {
    std::cerr << "delink: " << world.status().message() << "\n";
    return tools::kExitFailure;
  }
  SetLogRank(world->rank());
  const tools::CommandLine line = tools::ParseCommandLine(argc, argv);
  if (!line.command) {
    if (world->rank() == 0) {
      (line.exit_code == 0 ? std::cout : std::cerr) << line.text << std::flush;
    }
    return line.exit_code;
  }
  return std::visit(
      [&](const auto& command) { return tools::Run(command, models, *world); },
      *line.command);
}

}  // namespace delink
