// The communicator of a single process: one rank, everything completes at once.
// There is no peer, so Send and Recv fail a check.
#pragma once

#include <memory>
#include <string_view>

#include "framework/comm/communicator.h"

namespace delink {

class SelfCommunicator : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

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
};

}  // namespace delink
