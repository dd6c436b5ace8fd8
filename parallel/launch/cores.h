// The cores of a machine, divided among the ranks on it.
//
// Where the cores to divide come from:
// - If not told how to bind, Open MPI's mpirun binds each of two ranks to one
//   core, whatever taskset says. It reports this in
//   OMPI_MCA_orte_bound_at_launch, and a user's --bind-to in
//   OMPI_MCA_hwloc_base_binding_policy. If only the first is set, the cores are
//   those of mpirun itself (of its daemon on other machines), so `taskset -c
//   0-3 mpirun` works.
// - Otherwise they are this process's, as taskset, cpuset cgroups and Slurm set
//   them.
// Ranks that then see the same cores divide them; ranks with different cores
// keep theirs. A cgroup's processor quota reduces threads but binds nothing.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "parallel/launch/launcher.h"

namespace delink {

struct CoreShare {
  std::vector<int> cpus;  // the system's numbers, those of a core adjacent
  int threads = 1;        // how many this rank should compute with
};

// The share of rank `rank` of `size` in `pool`: [rank * c / size, (rank + 1) *
// c / size) of its c cpus, or one shared cpu when there are more ranks than
// cpus. `quota` (0: none) bounds the threads of all ranks together. `threads`
// (0: as many as cpus) overrides; if it exceeds the share's cpus, the rank may
// use the whole pool.
CoreShare ShareOfCores(const std::vector<int>& pool, int rank, int size,
                       int quota, int threads);

// Whether the launcher bound this process to cores without being asked to.
bool BoundByDefault(const Environment& environment);

// Finds this rank's share and binds the process to it: the calling thread, and
// all threads it starts later. A collective of `local`, the ranks of this
// machine; call it before any compute thread starts. OpenMP has counted the
// cores earlier, so pass it `threads` of the result.
absl::StatusOr<CoreShare> TakeCores(Communicator& local, int threads = 0);

// "0-3,8", for the log.
std::string CpuList(const std::vector<int>& cpus);

}  // namespace delink
