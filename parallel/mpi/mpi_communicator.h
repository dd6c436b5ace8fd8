// Ranks that are processes, joined by MPI.
//
// Open MPI's cheap thread support ends at MPI_THREAD_SERIALIZED. So the process
// makes every MPI call under one mutex, and only Split makes calls that wait.
// Operations progress while any Pending is tested or waited for.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/comm/communicator.h"

namespace delink {

// MPI is initialised as long as this lives. Communicators share it.
class MpiRuntime {
 public:
  // An error when MPI cannot serve several threads.
  static absl::StatusOr<std::shared_ptr<MpiRuntime>> Start(int* argc,
                                                           char*** argv);
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;
  ~MpiRuntime();

  TimedMutex& mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }

 private:
  MpiRuntime() = default;

  TimedMutex mutex_;
};

// The Status of an MPI error code; OK for MPI_SUCCESS. `call` names the call.
absl::Status MpiStatus(int error, std::string_view call);

// MPI_Comm_dup, but ranks sleep while they wait for others.
int DuplicateAsleep(MPI_Comm comm, MPI_Comm* copy);

class MpiCommunicator : public Communicator {
 public:
  // Counts in MPI are ints, so larger operations are split; tests split small
  // ones.
  static constexpr int64_t kLargest = int64_t{1} << 28;

  // Takes `comm` over. No call carries more than `largest` elements of all
  // ranks together.
  MpiCommunicator(std::shared_ptr<MpiRuntime> runtime, MPI_Comm comm,
                  int64_t largest = kLargest);
  ~MpiCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Pending> ReduceScatter(const void* send, void* recv,
                                         int64_t count, DType dtype,
                                         ReduceOp op) override;
  std::unique_ptr<Pending> AllGather(void* buffer, int64_t count,
                                     DType dtype) override;
  std::unique_ptr<Pending> AllReduce(void* buffer, int64_t count, DType dtype,
                                     ReduceOp op) override;
  std::unique_ptr<Pending> Broadcast(void* buffer, int64_t count, DType dtype,
                                     int root) override;
  std::unique_ptr<Pending> Send(const void* buffer, int64_t count, DType dtype,
                                int peer, int tag) override;
  std::unique_ptr<Pending> Recv(void* buffer, int64_t count, DType dtype,
                                int peer, int tag) override;
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color,
                                                      int key) override;
  void Abort(int code, std::string_view message) override;

  // Splits off the ranks of this machine, in the order of their ranks.
  absl::StatusOr<std::unique_ptr<Communicator>> SplitByMachine();

  // The same ranks again, with another limit.
  absl::StatusOr<std::unique_ptr<Communicator>> Duplicate(int64_t largest);

 private:
  class Requests;

  const std::shared_ptr<MpiRuntime> runtime_;
  MPI_Comm comm_;
  // For the messages inside ReduceScatter, so that they match no Send or Recv.
  MPI_Comm pieces_comm_ = MPI_COMM_NULL;
  // How many so far.
  int64_t reduce_scatters_ ABSL_GUARDED_BY(runtime_->mutex()) = 0;
  const int64_t largest_;
  int rank_ = 0;
  int size_ = 0;
};

}  // namespace delink
