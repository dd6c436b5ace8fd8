#include "parallel/launch/launcher.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "framework/comm/delayed_communicator.h"
#include "framework/comm/self_communicator.h"

namespace delink {
namespace {

// The number in a variable; nullopt when it is absent or no number.
std::optional<int> Number(const Environment& environment,
                          const std::string& name) {
  const std::optional<std::string> text = environment(name);
  if (!text.has_value()) return std::nullopt;
  int value = 0;
  const char* const end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || rest != end || value < 0) return std::nullopt;
  return value;
}

// srun's announcement, if there is one.
std::optional<Launcher> ReadSlurm(const Environment& environment) {
  if (!environment("SLURM_PROCID").has_value()) return std::nullopt;
  if (const auto tasks = Number(environment, "SLURM_STEP_NUM_TASKS")) {
    return Launcher{"SLURM_STEP_NUM_TASKS", *tasks};
  }
  const bool in_batch_script = environment("SLURM_JOB_ID").has_value() &&
                               !environment("SLURM_STEP_ID").has_value();
  const auto tasks = Number(environment, "SLURM_NTASKS");
  if (in_batch_script || !tasks.has_value()) return std::nullopt;
  return Launcher{"SLURM_NTASKS", *tasks};
}

struct Process {
  std::string name;
  pid_t parent = 0;
};

Process ReadProcess(pid_t process) {
  std::ifstream file(absl::StrFormat("/proc/%d/status", process));
  Process result;
  std::string word;
  while (file >> word) {
    if (word == "Name:") file >> result.name;
    if (word == "PPid:") {
      file >> result.parent;
      break;
    }
  }
  return result;
}

}  // namespace

std::optional<std::string> ProcessEnvironment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

Launcher ReadLauncher(const Environment& environment) {
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const auto size = Number(environment, name)) return {name, *size};
  }
  if (const auto slurm = ReadSlurm(environment)) return *slurm;
  for (const char* name : {"PMIX_RANK", "PMI_RANK"}) {
    if (environment(name).has_value()) return {name, 0};
  }
  return {};
}

absl::Status CheckLaunch(const Launcher& launcher, int size,
                         const std::string& built_with) {
  if (launcher.size == 0 || launcher.size == size) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "the launcher announces %d ranks (%s), but MPI finds %d: this program "
      "is built with %s; start it with that MPI's own mpirun, or under Slurm "
      "with a matching 'srun --mpi='",
      launcher.size, launcher.variable, size, built_with));
}

pid_t FindLauncher() {
  pid_t process = getppid();
  while (process > 1) {
    const Process info = ReadProcess(process);
    for (const char* name : {"mpirun", "mpiexec", "orterun", "orted"}) {
      if (info.name.starts_with(name)) return process;
    }
    process = info.parent;
  }
  return 1;
}

absl::StatusOr<std::unique_ptr<Communicator>> DelayAsAsked(
    std::unique_ptr<Communicator> comm, const Communicator& local,
    const Environment& environment) {
  constexpr char kName[] = "DELINK_DELAY";
  const std::optional<std::string> text = environment(kName);
  if (!text.has_value()) return comm;
  const absl::StatusOr<Link> link = ParseLink(*text);
  if (!link.ok()) {
    return absl::Status(
        link.status().code(),
        absl::StrCat(kName, ": ", std::string(link.status().message())));
  }
  if (local.size() != comm->size()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: all ranks must be on one machine to have one clock, but only %d "
        "of %d ranks are on this one; unset it",
        kName, local.size(), comm->size()));
  }
  if (comm->rank() == 0) {
    DELINK_LOG(kWarning) << kName << "=" << *text
                         << ": all exchanges between ranks are delayed";
  }
  return DelayExchanges(std::move(comm), *link);
}

World SingleProcess() {
  return World(std::make_unique<SelfCommunicator>(),
               std::make_unique<SelfCommunicator>(), HostName());
}

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

}  // namespace delink
