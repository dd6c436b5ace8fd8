// Exchanges device memory between ranks, in the order of a stream; used by the
// lanes of an engine. Communicator (communicator.h) exchanges host memory.
//
// Contract, beyond Communicator's
// - Order. An operation begins after all work given to the stream before the
//   call. Give the stream no work until the Pending is finished; later work
//   runs after the operation.
// - Asynchrony. A call and its Pending's Test wait neither for another rank nor
//   for the device, so one thread can drive several communicators.
// - One at a time. The Pending of an operation is finished before the next
//   operation is posted.
// - Memory. Addresses are the device's.
// - Threads, lifetime. The stream, the device and the underlying communicator
//   outlive it. One thread at a time uses it and its stream.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/device/backend.h"

namespace delink {

// One send or one receive of an exchange; the other pointer is null.
struct Transfer {
  const void* send = nullptr;
  void* recv = nullptr;
  int64_t count = 0;
  DType dtype = DType::kU8;
  int peer = 0;
  int tag = 0;
};

class StreamCommunicator {
 public:
  StreamCommunicator() = default;
  StreamCommunicator(const StreamCommunicator&) = delete;
  StreamCommunicator& operator=(const StreamCommunicator&) = delete;
  virtual ~StreamCommunicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Device memory is the host's and the stream synchronous: as many operations
  // may be under way, beside work of the stream, as of a Communicator.
  virtual bool overlaps() const = 0;

  // As Communicator's.
  virtual std::unique_ptr<Pending> ReduceScatter(const void* send, void* recv,
                                                 int64_t count, DType dtype,
                                                 ReduceOp op) = 0;
  virtual std::unique_ptr<Pending> AllGather(void* buffer, int64_t count,
                                             DType dtype) = 0;
  virtual std::unique_ptr<Pending> AllReduce(void* buffer, int64_t count,
                                             DType dtype, ReduceOp op) = 0;
  virtual std::unique_ptr<Pending> Broadcast(void* buffer, int64_t count,
                                             DType dtype, int root) = 0;
  // Makes all transfers at once: none waits for another of the list. A rank can
  // send to itself if the matching receive is in the same list: pairs follow
  // the list's order, have the same count and are copies on the device. Null if
  // there is nothing to wait for.
  virtual std::unique_ptr<Pending> Exchange(
      std::span<const Transfer> transfers) = 0;

  std::unique_ptr<Pending> Send(const void* buffer, int64_t count, DType dtype,
                                int peer, int tag);
  std::unique_ptr<Pending> Recv(void* buffer, int64_t count, DType dtype,
                                int peer, int tag);
};

// Every rank sends a part to every rank. `send` has the parts for ranks 0, 1,
// ... one after the other, of send_counts elements each; `recv` gets the parts
// from ranks 0, 1, ... . Post returns null if there is nothing to wait for.
struct AllToAllV {
  const void* send = nullptr;
  void* recv = nullptr;
  std::vector<int64_t> send_counts, recv_counts;  // by rank, zero allowed
  DType dtype = DType::kU8;
  int tag = 0;
};
std::unique_ptr<Pending> Post(StreamCommunicator& comm, const AllToAllV& what);

// Over a communicator of host memory. No one else may post operations on `comm`
// that could match these. Memory of a CUDA device is copied to the host,
// exchanged there and copied back, through pinned buffers that are kept from
// call to call. If device memory is host memory and streams are synchronous,
// nothing is copied.
std::unique_ptr<StreamCommunicator> StageThroughHost(Device& device,
                                                     Stream& stream,
                                                     Communicator& comm);

}  // namespace delink
