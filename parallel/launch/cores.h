// The cores of a machine, divided among the ranks on it.
//
// Where the cores to divide come from:
// - Open MPI's mpirun, not told how to bind, binds each of two ranks to one
//   core, whatever taskset says. It says so in OMPI_MCA_orte_bound_at_launch,
//   and a person's own --bind-to in OMPI_MCA_hwloc_base_binding_policy. With
//   the first and without the second, the cores are those of mpirun itself (of
//   its daemon on other machines), so that `taskset -c 0-3 mpirun` holds.
// - Otherwise they are this process's: taskset, cpuset cgroups and Slurm hold.
// Ranks that then see the same cores divide them; ranks that were given
// different ones keep what they were given. A cgroup's processor quota lessens
// the threads and binds nothing.
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
// (0: as many as cpus) overrides; more than the share's cpus free the rank to
// use the whole pool.
CoreShare ShareOfCores(const std::vector<int>& pool, int rank, int size,
                       int quota, int threads);

// Whether the launcher bound this process to cores without being asked to.
bool BoundByDefault(const Environment& environment);

// Finds this rank's share and binds the process to it: the calling thread, and
// all threads it starts later. A collective of `local`, the ranks of this
// machine; before any compute thread is started. OpenMP has counted the cores
// earlier than that: hand it `threads` of the result.
absl::StatusOr<CoreShare> TakeCores(Communicator& local, int threads = 0);

// "0-3,8", for the log.
std::string CpuList(const std::vector<int>& cpus);

}  // namespace delink
