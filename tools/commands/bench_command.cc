// `delink bench`.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "offload/rates/machine_rates.h"
#include "recipes/run/stage/nodes.h"
#include "recipes/schema/machine_file.h"
#include "tools/bench/bench.h"
#include "tools/bench/compare.h"
#include "tools/bench/disk.h"
#include "tools/bench/network_rates.h"
#include "tools/bench/rates_suite.h"
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

DeviceKind DeviceOf(const BenchCommand& c) {
  return c.device == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
}

bench::BenchOptions OptionsOf(const BenchCommand& c, int threads) {
  const bool all = c.suite == "all";
  return {.ops = all || c.suite == "ops",
          .steps = all || c.suite == "step",
          .updates = c.suite == "update",
          .device = DeviceOf(c),
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
          .distinct = c.distinct,
          .sets = c.sets,
          .repetitions = c.steps};
}

// Checks it before minutes of measurements that could not be saved. An existing
// file keeps its contents.
absl::Status CheckWritable(const std::string& path) {
  if (path.empty() || path == kStandardOutput) return absl::OkStatus();
  if (std::ofstream(path, std::ios::app)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--json: ", path,
                   " cannot be written; name a file in an existing folder that "
                   "you may write to"));
}

// Refuses options that do not belong to the suite.
absl::Status CheckSuite(const BenchCommand& c) {
  const bool disk = c.suite == "disk", machine = c.suite == "machine";
  if (!machine && !c.machine_file.empty()) {
    return absl::InvalidArgumentError(
        "--machine-file needs --suite machine; other suites write their "
        "measurements to --json FILE");
  }
  if (!machine && !disk) return absl::OkStatus();
  const std::pair<const char*, bool> others[] = {
      {"--device", disk && c.device != "cpu"},
      {"--threads", disk && c.threads != 0},
      {"--shape", !c.shapes.empty()},
      {"--json", !c.json.empty()},
      {"--compare", !c.compare.empty()},
      {"--seq", c.seq != 0},
      {"--batch", c.batch != 0},
      {"--steps", c.steps != 0},
      {"--depth", c.depth != 0},
      {"--share", !c.share.empty()},
      {"--precision", !c.precision.empty()},
      {"--recompute", !c.recompute.empty()},
      {"--distinct", c.distinct != 0},
      {"--set", !c.sets.empty()}};
  for (const auto& [name, given] : others) {
    if (!given) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        name, " cannot be used with --suite ", c.suite, ", which takes ",
        disk ? "--quick and --scratch"
             : "--device, --threads, --quick, --scratch and "
               "--machine-file"));
  }
  return absl::OkStatus();
}

// The file for the rates, checked before they are measured: its folder must
// exist, and it must not be a folder itself.
absl::StatusOr<std::string> MachinePath(const std::string& file) {
  if (file.empty()) {
    DELINK_ASSIGN_OR_RETURN(const std::string path,
                            offload::DefaultMachineRatesPath());
    DELINK_RETURN_IF_ERROR(MakeDirectories(ParentPath(path)));
    return path;
  }
  const std::string folder = ParentPath(file);
  if (!IsDirectory(folder) || IsDirectory(file) ||
      access(folder.c_str(), W_OK) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--machine-file: ", file,
        " cannot be written; name a file in an existing folder that you may "
        "write to"));
  }
  return file;
}

absl::Status MeasureTheDisk(const BenchCommand& command) {
  DELINK_ASSIGN_OR_RETURN(const bench::DiskSpeed speed,
                          bench::MeasureDisk(command.scratch, command.quick));
  Print(bench::ToText(speed));
  return absl::OkStatus();
}

absl::Status MeasureTheMachine(const BenchCommand& command, World& world) {
  DELINK_ASSIGN_OR_RETURN(const std::string path,
                          MachinePath(command.machine_file));
  DELINK_ASSIGN_OR_RETURN(const int threads, UseCores(world, command.threads));
  DELINK_ASSIGN_OR_RETURN(const offload::MachineRates rates,
                          bench::MeasureRates({.device = DeviceOf(command),
                                               .threads = threads,
                                               .quick = command.quick,
                                               .scratch = command.scratch},
                                              [](const std::string& what) {
                                                DELINK_LOG(kInfo) << what;
                                              }));
  DELINK_RETURN_IF_ERROR(WriteMachine(rates, path));
  Print(bench::ToText(rates));
  DELINK_LOG(kInfo) << "wrote the machine to " << path;
  return absl::OkStatus();
}

// Of several processes: adds the network to the file of this machine.
absl::StatusOr<offload::MachineRates> ReadForNetwork(
    const BenchCommand& command, const std::string& path) {
  if (DeviceOf(command) == DeviceKind::kCuda) {
    return absl::InvalidArgumentError(
        "--device: the network is measured between processes of the CPU; leave "
        "it out, or measure the GPU in one process");
  }
  absl::StatusOr<offload::MachineRates> rates = ReadMachine(path);
  if (rates.ok()) return rates;
  return absl::InvalidArgumentError(absl::StrCat(
      rates.status().message(),
      "; several processes add the network to the file of a machine, which one "
      "process writes first: delink bench --suite machine, without mpirun"));
}

absl::Status MeasureTheNetwork(const BenchCommand& command, World& world) {
  absl::StatusOr<std::string> path;
  absl::StatusOr<offload::MachineRates> rates;
  if (world.rank() == 0) {
    path = MachinePath(command.machine_file);
    rates = path.ok() ? ReadForNetwork(command, *path) : path.status();
  }
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(
      world.comm(), world.rank() == 0 ? rates.status() : absl::OkStatus()));
  DELINK_ASSIGN_OR_RETURN(const std::vector<int> nodes, NodesOf(world));
  DELINK_ASSIGN_OR_RETURN(
      const bench::MeasuredNetwork network,
      bench::MeasureNetwork(world.comm(), nodes, command.quick));
  if (world.rank() > 0) return absl::OkStatus();
  if (network.inside.bytes_per_s > 0) rates->inside = network.inside;
  if (network.between.bytes_per_s > 0) {
    rates->between = network.between;
    rates->nodes = std::max<int64_t>(
        rates->nodes, std::set<int>(nodes.begin(), nodes.end()).size());
  }
  DELINK_RETURN_IF_ERROR(WriteMachine(*rates, *path));
  Print(bench::ToText(*rates));
  DELINK_LOG(kInfo) << "added the network to " << *path;
  return absl::OkStatus();
}

absl::Status Measure(const BenchCommand& command, const ModelList& models,
                     World& world) {
  DELINK_RETURN_IF_ERROR(CheckSuite(command));
  if (command.suite == "machine") {
    return world.size() > 1 ? MeasureTheNetwork(command, world)
                            : MeasureTheMachine(command, world);
  }
  DELINK_RETURN_IF_ERROR(RequireOneProcess(world, "bench"));
  if (command.suite == "disk") return MeasureTheDisk(command);
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
    // Only JSON is written to standard output.
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
  return Finish(world, Measure(command, models, world));
}

}  // namespace delink::tools
