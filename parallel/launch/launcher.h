// Finds from the environment which launcher, if any, started this process, so
// that a single process need not start MPI to learn that it is alone.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "parallel/launch/launch.h"

namespace delink {

struct Launcher {
  // The variable that announced it, for messages; empty without a launcher.
  std::string variable;
  // How many ranks it announces; 0 when it does not say.
  int size = 1;

  // Whether there may be other ranks.
  bool several() const { return size != 1; }
};

// The value of an environment variable; nullopt when it is not set.
using Environment =
    std::function<std::optional<std::string>(const std::string& name)>;

std::optional<std::string> ProcessEnvironment(const std::string& name);

// Open MPI's mpirun, anything that speaks PMI or PMIx (MPICH's mpiexec, srun
// --mpi=pmi2 or pmix), MVAPICH, and srun's own variables. A batch script of
// Slurm also has SLURM_NTASKS, though its processes are no ranks; so with Slurm
// only a job step counts.
Launcher ReadLauncher(const Environment& environment);

// An error with the remedy if `launcher` announces other ranks than the `size`
// that were found. `built_with` names the MPI of this build.
absl::Status CheckLaunch(const Launcher& launcher, int size,
                         const std::string& built_with);

// The process of the mpirun that started this one, perhaps through a shell; the
// system's first process if it cannot be seen.
pid_t FindLauncher();

// Delays exchanges between ranks as DELINK_DELAY says, "0.005,1e9"
// (framework/comm/delayed_communicator.h); if it is not set, returns `comm`.
// `local` has the ranks of this machine. Collective over `comm`.
// FailedPrecondition: some ranks are on other machines. InvalidArgument:
// DELINK_DELAY is malformed.
absl::StatusOr<std::unique_ptr<Communicator>> DelayAsAsked(
    std::unique_ptr<Communicator> comm, const Communicator& local,
    const Environment& environment);

// A world of one process.
World SingleProcess();

// This machine's name.
std::string HostName();

}  // namespace delink
