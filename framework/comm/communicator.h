// A group of ranks that exchange memory: the seam between one process and many.
//
// Contract
// - Order. Every rank of a communicator posts the same collectives, with the
//   same count, dtype and operation, in the same order. Send and Recv match by
//   (peer, tag) in posting order and count apart from the collectives.
// - Asynchrony. A call posts and returns at once; the operation is complete
//   when its Pending says so. Several may be under way; they complete in any
//   order. MPI progresses only inside Test or Wait of any Pending.
// - Aliasing. Buffers belong to the operation from the call until it is
//   complete: nobody else writes them, and nobody reads those that it writes.
//   `send` and `recv` do not overlap.
// - Units. Counts are elements, zero allowed. Memory is the host's.
// - Determinism. ReduceScatter combines in the order of ranks, so threads and
//   processes as ranks get the same bits. The order of an AllReduce depends
//   only on the kind of communicator, its size, the count and the layout of
//   ranks on machines: all ranks get the same bits, and so does the next run.
// - Errors. A wrong peer, root, tag or negative count is a programmer error (a
//   check). Test and Wait return the transport's errors as a Status; the
//   communicator is then unusable. If ranks are threads, they also notice a
//   rank that is gone or posts another collective. Under MPI the launcher ends
//   a run that lost a rank, and differing collectives may hang.
// - Threads. Calls on one communicator come from one thread at a time;
//   different communicators, and Pendings, may be used by different threads.
// - Lifetime. A communicator outlives its Pendings. Communicators split from it
//   are independent of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/tensor/dtype.h"

namespace delink {

enum class ReduceOp { kSum, kMax, kMin };

// An operation under way. It is finished once Test has returned true or an
// error, or Wait has returned. Destroying it earlier is a programmer error,
// because its buffers are still being written.
class Pending {
 public:
  Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  virtual ~Pending();

  // Whether the operation is complete; never blocks. Once it is finished, Test
  // repeats its last answer.
  absl::StatusOr<bool> Test();

  // Polls Test, with short sleeps, until the operation is finished.
  absl::Status Wait();

 protected:
  // Test's work; not called again once it returned true or an error.
  virtual absl::StatusOr<bool> Poll() = 0;

 private:
  bool finished_ = false;
  absl::Status status_;
};

class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // send: size() * count elements, recv: count; recv becomes the reduction of
  // all ranks' chunk number rank(). kF32, kF64, kI32, kI64; and kBF16, which is
  // combined in f32 and rounded once.
  virtual std::unique_ptr<Pending> ReduceScatter(const void* send, void* recv,
                                                 int64_t count, DType dtype,
                                                 ReduceOp op) = 0;

  // buffer: size() * count elements. On entry it has the rank's own chunk at
  // rank() * count, on completion the chunks of all ranks. Any dtype.
  virtual std::unique_ptr<Pending> AllGather(void* buffer, int64_t count,
                                             DType dtype) = 0;

  // In place, count elements. kF32, kF64, kI32, kI64.
  virtual std::unique_ptr<Pending> AllReduce(void* buffer, int64_t count,
                                             DType dtype, ReduceOp op) = 0;

  // count elements, from `root` to everybody. Any dtype.
  virtual std::unique_ptr<Pending> Broadcast(void* buffer, int64_t count,
                                             DType dtype, int root) = 0;

  // count elements to, or from, another rank; 0 <= tag < kTags. A Send may wait
  // for its Recv. Any dtype, the same count on both sides.
  virtual std::unique_ptr<Pending> Send(const void* buffer, int64_t count,
                                        DType dtype, int peer, int tag) = 0;
  virtual std::unique_ptr<Pending> Recv(void* buffer, int64_t count,
                                        DType dtype, int peer, int tag) = 0;

  // Collective and blocking: ranks that give the same colour (>= 0) form a new
  // communicator, ordered by key, then by rank here.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Split(int color,
                                                              int key) = 0;

  // Ends the group because of an error that perhaps only this rank knows, and
  // prints `message` with the rank's number. If ranks are processes, all end
  // with `code` (1 to 125). If they are threads, whatever they wait for returns
  // the message as an error.
  virtual void Abort(int code, std::string_view message) = 0;

  static constexpr int kTags = 32768;  // what MPI grants everywhere
};

// Blocking conveniences. All are collectives of `comm`.

absl::Status Barrier(Communicator& comm);

absl::StatusOr<double> AllReduceScalar(Communicator& comm, double value,
                                       ReduceOp op);
absl::StatusOr<int64_t> AllReduceScalar(Communicator& comm, int64_t value,
                                        ReduceOp op);

// OK if `status` is OK on every rank; else, on every rank, the code and message
// of the lowest failing rank: "rank 2: cannot open corpus/train".
absl::Status AgreeOnStatus(Communicator& comm, const absl::Status& status);

// The root's text, on every rank; elsewhere `text` is ignored.
absl::StatusOr<std::string> BroadcastString(Communicator& comm,
                                            std::string_view text, int root);

}  // namespace delink
