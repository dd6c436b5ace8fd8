#include "parallel/mpi/mpi_reduce_scatter.h"

#include <algorithm>
#include <utility>

#include "framework/base/status_macros.h"
#include "framework/comm/reduce.h"

namespace delink {
namespace {

// Large enough for full bandwidth, small enough that summing overlaps and the
// received pieces of all ranks together stay within 16 MiB of floats.
int64_t PieceCount(int64_t count, int size, int64_t largest) {
  constexpr int64_t kSmallest = 1 << 16;
  constexpr int64_t kAllPieces = 1 << 22;
  const int64_t quarter = std::max(count / 4, kSmallest);
  const int64_t room = std::max<int64_t>(kAllPieces / (2 * size), 1024);
  return std::min({quarter, room, largest});
}

}  // namespace

MpiReduceScatter::MpiReduceScatter(std::shared_ptr<MpiRuntime> runtime,
                                   const Arguments& arguments)
    : runtime_(std::move(runtime)),
      a_(arguments),
      width_(SizeOf(arguments.dtype)),
      piece_count_(PieceCount(a_.count, a_.size, a_.largest)) {
  for (Piece& piece : pieces_) {
    if (status_.ok()) status_ = PostNext(piece);
  }
}

// Leaves the piece empty when everything is posted.
absl::Status MpiReduceScatter::PostNext(Piece& piece) {
  piece.first = posted_;
  piece.count = std::min(piece_count_, a_.count - posted_);
  piece.requests.clear();
  posted_ += piece.count;
  if (piece.count == 0) return absl::OkStatus();
  const int64_t bytes = piece.count * width_;
  if (piece.received == nullptr) {
    piece.received =
        std::make_unique_for_overwrite<std::byte[]>(bytes * (a_.size - 1));
  }
  const int n = static_cast<int>(piece.count);
  // Every rank begins with its right neighbour, so that no rank is first for
  // all.
  for (int step = 1; step < a_.size; ++step) {
    const int from = (a_.rank + a_.size - step) % a_.size;
    const int slot = from < a_.rank ? from : from - 1;
    DELINK_RETURN_IF_ERROR(MpiStatus(
        MPI_Irecv(piece.received.get() + slot * bytes, n, a_.type, from, a_.tag,
                  a_.comm, &piece.requests.emplace_back()),
        "ReduceScatter"));
  }
  for (int step = 1; step < a_.size; ++step) {
    const int to = (a_.rank + step) % a_.size;
    const auto* chunk = static_cast<const std::byte*>(a_.send) +
                        (to * a_.count + piece.first) * width_;
    DELINK_RETURN_IF_ERROR(
        MpiStatus(MPI_Isend(chunk, n, a_.type, to, a_.tag, a_.comm,
                            &piece.requests.emplace_back()),
                  "ReduceScatter"));
  }
  return absl::OkStatus();
}

void MpiReduceScatter::Combine(const Piece& piece) {
  std::vector<const void*> sources(a_.size);
  for (int rank = 0; rank < a_.size; ++rank) {
    const int slot = rank < a_.rank ? rank : rank - 1;
    sources[rank] = rank == a_.rank
                        ? static_cast<const std::byte*>(a_.send) +
                              (rank * a_.count + piece.first) * width_
                        : piece.received.get() + slot * piece.count * width_;
  }
  comm::Reduce(sources, static_cast<std::byte*>(a_.recv) + piece.first * width_,
               piece.count, a_.dtype, a_.op);
}

absl::StatusOr<bool> MpiReduceScatter::Poll() {
  while (combined_ < a_.count) {
    Piece& piece = pieces_[oldest_];
    {
      const MutexLock lock(runtime_->mutex());
      if (!status_.ok()) return status_;
      int done = 0;
      DELINK_RETURN_IF_ERROR(MpiStatus(
          MPI_Testall(static_cast<int>(piece.requests.size()),
                      piece.requests.data(), &done, MPI_STATUSES_IGNORE),
          "ReduceScatter"));
      if (done == 0) return false;
    }
    Combine(piece);
    combined_ += piece.count;
    const MutexLock lock(runtime_->mutex());
    DELINK_RETURN_IF_ERROR(PostNext(piece));
    oldest_ = 1 - oldest_;
  }
  return true;
}

}  // namespace delink
