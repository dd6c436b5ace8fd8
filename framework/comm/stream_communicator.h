// What a group of ranks exchanges of a device's memory, in the order of a
// stream: what an engine's lane has. Communicator (communicator.h) is of the
// host's memory.
//
// Contract, beyond Communicator's
// - Order. An operation begins behind what the stream was given before the
//   call. What the stream is given once the Pending is finished comes behind
//   the result; in between it is given nothing.
// - Asynchrony. A call and its Pending's Test never wait, neither for another
//   rank nor for the device: one thread can drive several of these.
// - One at a time. The next operation is called for when the last one's Pending
//   is finished.
// - Memory. Addresses are the device's.
// - Threads, lifetime. The stream, the device and what it is made of outlive
//   it; one thread at a time has it and its stream.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/device/backend.h"

namespace delink {

// A part of an exchange: to another rank, or from it. One of `send` and `recv`
// is null.
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
  // Transfers at a time: no send or receive waits for another of the list.
  // Those to and from oneself are in one list, paired in its order, with the
  // same count: copies on the device. Null where nothing is to be waited for.
  virtual std::unique_ptr<Pending> Exchange(
      std::span<const Transfer> transfers) = 0;

  std::unique_ptr<Pending> Send(const void* buffer, int64_t count, DType dtype,
                                int peer, int tag);
  std::unique_ptr<Pending> Recv(void* buffer, int64_t count, DType dtype,
                                int peer, int tag);
};

// Of each rank what it has for each other, in the order of ranks: `send` has
// the parts for ranks 0, 1, ..., one behind the other, send_counts elements
// each; `recv` gets those from ranks 0, 1, ... . Null where all is there.
struct AllToAllV {
  const void* send = nullptr;
  void* recv = nullptr;
  std::vector<int64_t> send_counts, recv_counts;  // by rank, zero allowed
  DType dtype = DType::kU8;
  int tag = 0;
};
std::unique_ptr<Pending> Post(StreamCommunicator& comm, const AllToAllV& what);

// Over a communicator of the host's memory, which it shares with nobody whose
// operations could be taken for its own: what a CUDA device holds is brought to
// the host, exchanged there and taken back, through pinned memory of its own
// that it keeps from call to call. Where the device's memory is the host's and
// streams are synchronous, nothing is copied.
std::unique_ptr<StreamCommunicator> StageThroughHost(Device& device,
                                                     Stream& stream,
                                                     Communicator& comm);

}  // namespace delink
