// The launch of a build without MPI: one process, or a clear refusal.
#include "parallel/launch/launch.h"

#include "absl/strings/str_format.h"
#include "parallel/launch/launcher.h"

namespace delink {

absl::StatusOr<World> StartWorld(int*, char***) {
  const Launcher launcher = ReadLauncher(ProcessEnvironment);
  if (launcher.size > 1) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the launcher announces %d ranks (%s), but this program is built "
        "without MPI: install MPI's development files and build again, or "
        "start it without a launcher",
        launcher.size, launcher.variable));
  }
  return SingleProcess();
}

}  // namespace delink
