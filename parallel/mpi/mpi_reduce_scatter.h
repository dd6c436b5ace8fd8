// Reduce-scatter between processes, piece by piece. Ranks send directly to each
// other and sum in the order of ranks, so they get the same bits as threads.
//
// MPI_Ireduce_scatter_block of Open MPI 4.1 reduces everything to rank 0 and
// scatters from there, which sends more bytes, all of them through one rank.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "framework/comm/communicator.h"
#include "parallel/mpi/mpi_communicator.h"

namespace delink {

class MpiReduceScatter : public Pending {
 public:
  struct Arguments {
    MPI_Comm comm;  // lent, for this kind of message only
    int rank;
    int size;
    int tag;  // different for all that may be under way together
    const void* send;
    void* recv;
    int64_t count;
    DType dtype;
    MPI_Datatype type;
    ReduceOp op;
    int64_t largest;  // elements in one message, at most
  };

  // Posts the first pieces.
  MpiReduceScatter(std::shared_ptr<MpiRuntime> runtime,
                   const Arguments& arguments)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(runtime->mutex());

 private:
  // A piece under way: the receives from all other ranks, and the sends to
  // them.
  struct Piece {
    int64_t first = 0;
    int64_t count = 0;
    // By rank, without our own; room for the first and largest piece.
    std::unique_ptr<std::byte[]> received;
    std::vector<MPI_Request> requests;
  };

  absl::StatusOr<bool> Poll() override;
  absl::Status PostNext(Piece& piece)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(runtime_->mutex());
  void Combine(const Piece& piece);

  const std::shared_ptr<MpiRuntime> runtime_;
  const Arguments a_;
  const int64_t width_;
  const int64_t piece_count_;
  // Elements of pieces posted so far, and of pieces that are done.
  int64_t posted_ ABSL_GUARDED_BY(runtime_->mutex()) = 0;
  int64_t combined_ = 0;
  // Two, so that one travels while the other is summed; taken in turn.
  Piece pieces_[2];
  int oldest_ = 0;
  absl::Status status_ ABSL_GUARDED_BY(runtime_->mutex());
};

}  // namespace delink
