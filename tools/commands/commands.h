// Run executes a parsed command. It prints the command's output and errors, and
// returns the exit code, which is the same on every rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/device/backend.h"
#include "parallel/launch/launch.h"
#include "recipes/models/model_list.h"
#include "recipes/schema/recipe.h"
#include "tools/syntax/command_line.h"

namespace delink::tools {

inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;  // nothing was written
// Plus the signal's number, if a signal stopped a run, which then saved.
inline constexpr int kExitSignal = 128;

int Run(const BuildData& command, const ModelList& models, World& world);
int Run(const ImportData& command, const ModelList& models, World& world);
int Run(const DescribeData& command, const ModelList& models, World& world);
int Run(const CheckData& command, const ModelList& models, World& world);
int Run(const VerifyData& command, const ModelList& models, World& world);
int Run(const TrainOptions& command, const ModelList& models, World& world);
int Run(const PlanCommand& command, const ModelList& models, World& world);
int Run(const DelinkCommand& command, const ModelList& models, World& world);
int Run(const ConvertOptions& command, const ModelList& models, World& world);
int Run(const Inspect& command, const ModelList& models, World& world);
int Run(const Eval& command, const ModelList& models, World& world);
int Run(const Generate& command, const ModelList& models, World& world);
int Run(const SweepCommand& command, const ModelList& models, World& world);
int Run(const ReportCommand& command, const ModelList& models, World& world);
int Run(const BenchCommand& command, const ModelList& models, World& world);
int Run(const CompletionCommand& command, const ModelList& models,
        World& world);
int Run(const ManCommand& command, const ModelList& models, World& world);

// Binds this rank to its share of the machine's cores, and returns the number
// of its threads. `threads`: 0 for as many as cores. Collective.
absl::StatusOr<int> UseCores(World& world, int64_t threads);

// The device for a checkpoint of that recipe. `asked`: "auto", "cpu", "cuda",
// or empty for the recipe's own. Collective.
absl::StatusOr<std::unique_ptr<Device>> DeviceFor(const std::string& asked,
                                                  const Recipe& recipe,
                                                  World& world);

// Prints a result; Main checks that it could be written.
void Print(std::string_view text);

// Prints an error that all ranks have, once, and returns its exit code: 0 if
// there is none; 2 if a file, recipe or argument of the user is wrong.
int Finish(World& world, const absl::Status& status);

// An error unless the program was started as a single process.
absl::Status RequireOneProcess(World& world, const char* command);

}  // namespace delink::tools
