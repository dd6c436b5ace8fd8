// A communicator that passes everything on and counts what is reduced, gathered
// and sent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/comm/communicator.h"

namespace delink::testing {

class CountingCommunicator final : public Communicator {
 public:
  // Told of each part that this rank hands to another one, numbered as in
  // `inner`, by the all-gathers, reduce-scatters and sends of communicators
  // that are split from this one.
  struct Part {
    int peer;
    const char* data;
    int64_t bytes;
    DType dtype;
  };
  using Tell = std::function<void(const Part&)>;
  explicit CountingCommunicator(Communicator& inner, Tell tell = nullptr)
      : inner_(inner), tell_(std::move(tell)), ranks_(inner.size()) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }
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
    for (int peer = 0; peer < size(); ++peer) {
      TellOf(peer, send, peer * count, count, dtype);
    }
    return inner_.ReduceScatter(send, recv, count, dtype, op);
  }
  std::unique_ptr<Pending> AllGather(void* buffer, int64_t count,
                                     DType dtype) override {
    gathered_ += count * SizeOf(dtype) * size();
    ++calls_;
    for (int peer = 0; peer < size(); ++peer) {
      TellOf(peer, buffer, rank() * count, count, dtype);
    }
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
    TellOf(peer, buffer, 0, count, dtype);
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
    if (tell_ == nullptr) return inner_.Split(color, key);
    DELINK_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> part,
                            inner_.Split(color, key));
    auto counting = std::make_unique<CountingCommunicator>(*part, tell_);
    std::vector<int>& ranks = counting->ranks_;
    ranks[part->rank()] = ranks_[rank()];
    DELINK_RETURN_IF_ERROR(
        part->AllGather(ranks.data(), 1, DType::kI32)->Wait());
    counting->owned_ = std::move(part);
    return counting;
  }
  void Abort(int code, std::string_view message) override {
    inner_.Abort(code, message);
  }

 private:
  void TellOf(int peer, const void* data, int64_t first, int64_t count,
              DType dtype) const {
    if (owned_ == nullptr || peer == rank()) return;
    const int64_t width = SizeOf(dtype);
    tell_({ranks_[peer], static_cast<const char*>(data) + first * width,
           count * width, dtype});
  }

  std::unique_ptr<Communicator> owned_;  // if it was split off
  Communicator& inner_;
  const Tell tell_;
  std::vector<int> ranks_;  // of the first communicator
  int64_t reduced_ = 0, gathered_ = 0, sent_ = 0, calls_ = 0;
};

}  // namespace delink::testing
