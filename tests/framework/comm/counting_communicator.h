// A communicator that passes everything on and counts what is reduced, gathered
// and sent.
#pragma once

#include <cstdint>
#include <memory>

#include "framework/comm/communicator.h"

namespace delink::testing {

class CountingCommunicator final : public Communicator {
 public:
  explicit CountingCommunicator(Communicator& inner) : inner_(inner) {}
  // Bytes of the whole planes.
  int64_t reduced() const { return reduced_; }
  int64_t gathered() const { return gathered_; }
  // Bytes that this rank sent to others.
  int64_t sent() const { return sent_; }
  // Operations of any kind.
  int64_t calls() const { return calls_; }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::unique_ptr<Pending> ReduceScatter(const void* send, void* recv,
                                         int64_t count, DType dtype,
                                         ReduceOp op) override {
    reduced_ += count * SizeOf(dtype) * size();
    ++calls_;
    return inner_.ReduceScatter(send, recv, count, dtype, op);
  }
  std::unique_ptr<Pending> AllGather(void* buffer, int64_t count,
                                     DType dtype) override {
    gathered_ += count * SizeOf(dtype) * size();
    ++calls_;
    return inner_.AllGather(buffer, count, dtype);
  }
  std::unique_ptr<Pending> AllReduce(void* buffer, int64_t count, DType dtype,
                                     ReduceOp op) override {
    reduced_ += count * SizeOf(dtype);
    ++calls_;
    return inner_.AllReduce(buffer, count, dtype, op);
  }
  std::unique_ptr<Pending> Broadcast(void* buffer, int64_t count, DType dtype,
                                     int root) override {
    ++calls_;
    return inner_.Broadcast(buffer, count, dtype, root);
  }
  std::unique_ptr<Pending> Send(const void* buffer, int64_t count, DType dtype,
                                int peer, int tag) override {
    ++calls_;
    sent_ += count * SizeOf(dtype);
    return inner_.Send(buffer, count, dtype, peer, tag);
  }
  std::unique_ptr<Pending> Recv(void* buffer, int64_t count, DType dtype,
                                int peer, int tag) override {
    ++calls_;
    return inner_.Recv(buffer, count, dtype, peer, tag);
  }
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color,
                                                      int key) override {
    ++calls_;
    return inner_.Split(color, key);
  }
  void Abort(int code, std::string_view message) override {
    inner_.Abort(code, message);
  }

 private:
  Communicator& inner_;
  int64_t reduced_ = 0, gathered_ = 0, sent_ = 0, calls_ = 0;
};

}  // namespace delink::testing
