// The launch of a build with MPI.
#include "parallel/launch/launch.h"

#include <mpi.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "parallel/launch/launcher.h"
#include "parallel/mpi/mpi_communicator.h"

namespace delink {
namespace {

// "Open MPI v4.1.4", the first words of the library's version text.
std::string LibraryName() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string name(text.data(), length);
  return name.substr(0, name.find_first_of(",\n"));
}

}  // namespace

absl::StatusOr<World> StartWorld(int* argc, char*** argv) {
  const Launcher launcher = ReadLauncher(ProcessEnvironment);
  if (!launcher.several()) return SingleProcess();
  DELINK_ASSIGN_OR_RETURN(auto runtime, MpiRuntime::Start(argc, argv));
  MPI_Comm all = MPI_COMM_NULL;
  DELINK_RETURN_IF_ERROR(
      MpiStatus(DuplicateAsleep(MPI_COMM_WORLD, &all), "MPI_Comm_idup"));
  auto comm = std::make_unique<MpiCommunicator>(runtime, all);
  DELINK_RETURN_IF_ERROR(CheckLaunch(launcher, comm->size(), LibraryName()));
  SetLogRank(comm->rank());
  DELINK_ASSIGN_OR_RETURN(auto local, comm->SplitByMachine());
  DELINK_ASSIGN_OR_RETURN(auto all_ranks, DelayAsAsked(std::move(comm), *local,
                                                       ProcessEnvironment));
  return World(std::move(all_ranks), std::move(local), HostName());
}

}  // namespace delink
