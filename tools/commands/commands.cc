#include "tools/commands/commands.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/status_macros.h"
#include "layers/kernels/cpu/threads.h"
#include "parallel/launch/cores.h"
#include "parallel/launch/launcher.h"
#include "recipes/run/pretrain.h"
#include "recipes/run/setup/choose_device.h"
#include "recipes/run/setup/setup.h"
#include "recipes/saved/inspect.h"
#include "recipes/saved/offline_delink.h"
#include "recipes/schema/limits.h"
#include "recipes/schema/recipe_io.h"

namespace delink::tools {
namespace {

void PrintError(const absl::Status& status) {
  for (const auto& line :
       absl::StrSplit(status.message(), '\n', absl::SkipEmpty())) {
    DELINK_LOG(kError) << std::string(line);
  }
}

// The threads of a rank, before the run is set up. The set-up reports it if the
// recipe cannot be read.
int64_t ThreadsOf(const TrainOptions& options, const ModelList& models) {
  if (options.threads != 0) return options.threads;
  const auto recipe = ReadRecipe(options.recipe, options.sets, KindsOf(models));
  return recipe.ok() ? recipe->run.threads : 0;
}

// Ends all ranks after an error that perhaps only this one has.
int AbortAll(World& world, const absl::Status& status) {
  if (world.size() == 1) return Finish(world, status) == 0 ? 0 : kExitFailure;
  // If all ranks have the error, rank 0 reports it.
  constexpr auto kPatience = std::chrono::milliseconds(500);
  if (world.rank() > 0) std::this_thread::sleep_for(kPatience);
  world.Abort(kExitFailure, std::string(status.message()));
  return kExitFailure;
}

absl::StatusOr<std::unique_ptr<RunSetup>> SetUp(const TrainOptions& command,
                                                const ModelList& models,
                                                World& world) {
  TrainOptions options = command;
  const absl::StatusOr<int> threads =
      UseCores(world, ThreadsOf(options, models));
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(world.comm(), threads.status()));
  options.threads = *threads;
  return RunSetup::Create(options, models, world);
}

}  // namespace

void Print(std::string_view text) {
  std::cout << Printable(text) << std::flush;
}

absl::StatusOr<int> UseCores(World& world, int64_t threads) {
  const auto environment = ProcessEnvironment("OMP_NUM_THREADS");
  int64_t asked = 0;
  if (threads == 0 && environment && absl::SimpleAtoi(*environment, &asked)) {
    threads = std::max<int64_t>(asked, 0);
  }
  if (threads > schema::kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("OMP_NUM_THREADS: ", threads, " is out of range: 1 to ",
                     schema::kMaxThreads, " threads"));
  }
  DELINK_ASSIGN_OR_RETURN(const CoreShare share,
                          TakeCores(world.local(), static_cast<int>(threads)));
  cpu::SetThreads(share.threads);
  return share.threads;
}

absl::StatusOr<std::unique_ptr<Device>> DeviceFor(const std::string& asked,
                                                  const Recipe& recipe,
                                                  World& world) {
  return ChooseDevice({.device = ParseDevice(asked).value_or(recipe.run.device),
                       .ranks_per_gpu = recipe.run.ranks_per_gpu},
                      world);
}

int Finish(World& world, const absl::Status& status) {
  if (status.ok()) return 0;
  if (world.rank() == 0) PrintError(status);
  const bool usage = absl::IsInvalidArgument(status) ||
                     absl::IsNotFound(status) || absl::IsAlreadyExists(status);
  return usage ? kExitUsage : kExitFailure;
}

absl::Status RequireOneProcess(World& world, const char* command) {
  if (world.size() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("delink ", command, " runs in one process, but ",
                   world.size(), " were started; run it without mpirun"));
}

int Run(const TrainOptions& command, const ModelList& models, World& world) {
  const auto run = SetUp(command, models, world);
  if (!run.ok()) return Finish(world, run.status());
  const absl::StatusOr<int> signal = Train(**run, command.until_step);
  (*run)->watch().Leave();
  if (!signal.ok()) return AbortAll(world, signal.status());
  return *signal == 0 ? 0 : kExitSignal + *signal;
}

int Run(const DelinkCommand& command, const ModelList& models, World& world) {
  const absl::Status alone = RequireOneProcess(world, "delink");
  if (!alone.ok()) return Finish(world, alone);
  const auto report = OfflineDelink({.checkpoint = command.checkpoint,
                                     .out = command.out,
                                     .share = command.share,
                                     .state = command.state,
                                     .depth = command.depth,
                                     .grow = command.grow,
                                     .upcycle = command.upcycle,
                                     .noise = command.noise},
                                    models);
  if (report.ok()) Print(ToString(*report));
  return Finish(world, report.status());
}

int Run(const Inspect& command, const ModelList& models, World& world) {
  const absl::Status alone = RequireOneProcess(world, "inspect");
  if (!alone.ok()) return Finish(world, alone);
  const auto seen = InspectCheckpoint(command.checkpoint, models);
  if (seen.ok()) Print(command.json ? ToJson(*seen) : ToText(*seen));
  return Finish(world, seen.status());
}

}  // namespace delink::tools
