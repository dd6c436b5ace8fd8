#include "tools/main.h"

#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <type_traits>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/status_macros.h"
#include "framework/comm/communicator.h"
#include "framework/device/huge_pages.h"
#include "layers/kernels/cpu/spin.h"
#include "parallel/launch/launch.h"
#include "parallel/watch/signals.h"
#include "recipes/record/environment.h"
#include "tools/commands/commands.h"
#include "tools/syntax/command_line.h"

namespace delink {
namespace {

bool NobodyReads(int descriptor) {
  pollfd state = {.fd = descriptor};
  return poll(&state, 1, 0) == 1 && (state.revents & POLLERR) != 0;
}

// The exit code of a command that ends with `code` if all its output has been
// written. If nobody reads its pipe any more, it ends as other programs do.
int Written(int code) {
  if (std::cout.flush()) return code;
  if (NobodyReads(STDOUT_FILENO)) EndOfBrokenPipe();
  DELINK_LOG(kError) << "standard output: not all of it could be written; is "
                        "the disk full?";
  return code == 0 ? tools::kExitFailure : code;
}

// The command of this process, for comparison with other ranks.
std::string StartedWith(const tools::CommandLine& line,
                        const char* const* argv) {
  if (line.command) return absl::StrCat("'delink ", argv[1], "'");
  if (line.exit_code == 0) return "--help or --version";
  return absl::StrCat("arguments that are not a command (",
                      line.text.substr(0, line.text.find('\n')), ")");
}

// Checks that all ranks have the same command. Otherwise some would wait for
// others for ever.
absl::Status AgreeOnCommand(World& world, const tools::CommandLine& line,
                            const char* const* argv) {
  if (world.size() == 1) return absl::OkStatus();
  const std::string mine =
      absl::StrCat(StartedWith(line, argv), " by ", BuildLine());
  DELINK_ASSIGN_OR_RETURN(const std::string first,
                          BroadcastString(world.comm(), mine, 0));
  return AgreeOnStatus(
      world.comm(),
      mine == first
          ? absl::OkStatus()
          : absl::InvalidArgumentError(absl::StrCat(
                "this rank was started with ", mine, ", rank 0 with ", first,
                "; start all ranks with the same program and command")));
}

// Sets variables that libraries read before main, and restarts the process once
// for them. If it cannot, the process continues without.
void RestartWithVariables(char** argv) {
  const bool spins = cpu::SpinBriefly();
  if (!UseHugePagesFromRestart() && !spins) return;
  std::error_code error;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) execv(program.c_str(), argv);
}

}  // namespace

int Main(int argc, char** argv, ModelList models) {
  RestartWithVariables(argv);
  LetWritesFail();
  absl::StatusOr<World> world = StartWorld(&argc, &argv);
  if (!world.ok()) {
    std::cerr << "delink: " << Printable(std::string(world.status().message()))
              << "\n";
    return tools::kExitFailure;
  }
  SetLogRank(world->rank());
  const tools::CommandLine line = tools::ParseCommandLine(argc, argv);
  const absl::Status same = AgreeOnCommand(*world, line, argv);
  if (!same.ok()) return tools::Finish(*world, same);
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
