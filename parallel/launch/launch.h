// How a process finds the other ranks of its run. Two folders implement this
// header: parallel/mpi, and parallel/no_mpi in a build without MPI.
//
// Without a launcher (mpirun, srun) a run is one process and does not start
// MPI. The environment tells which launcher started the process (launcher.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"

namespace delink {

// All ranks of a run, as one of them sees them. MPI is finalised when the last
// communicator made from it is destroyed. That waits for the other ranks, so a
// rank that fails alone calls Abort. The main thread starts and ends it.
class World {
 public:
  World(std::unique_ptr<Communicator> comm, std::unique_ptr<Communicator> local,
        std::string host)
      : comm_(std::move(comm)),
        local_(std::move(local)),
        host_(std::move(host)) {}

  // All ranks.
  Communicator& comm() { return *comm_; }

  // Those on this machine, in the order of their ranks in comm().
  Communicator& local() { return *local_; }

  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }
  int local_rank() const { return local_->rank(); }
  int local_size() const { return local_->size(); }
  const std::string& host() const { return host_; }

  // Ends all processes of the run with `code` (1 to 125), printing `message`.
  void Abort(int code, std::string_view message) {
    comm_->Abort(code, message);
  }

 private:
  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<Communicator> local_;
  std::string host_;
};

// Call once, first thing in main, before any thread is started. Takes the
// arguments that MPI claims for itself out of argv. Errors: a launcher
// announces several ranks, but the build has no MPI, or its MPI is not the
// launcher's, so that every process finds itself alone.
absl::StatusOr<World> StartWorld(int* argc, char*** argv);

}  // namespace delink
