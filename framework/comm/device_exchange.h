// Collectives over the memory of a device. Communicators exchange the host's
// memory: what a CUDA device holds is brought to the host, exchanged there and
// taken back. On other devices nothing is copied.
//
// A call begins once the stream's work is done, and returns when its result is
// there. One thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "framework/comm/communicator.h"
#include "framework/device/backend.h"

namespace delink {

class DeviceExchange {
 public:
  // Not owned; all outlive the exchange.
  DeviceExchange(Device& device, Stream& stream, Communicator& comm)
      : device_(device), stream_(stream), comm_(comm) {}

  // As Communicator's.
  absl::Status ReduceScatter(const void* send, void* recv, int64_t count,
                             DType dtype, ReduceOp op);
  absl::Status AllGather(void* buffer, int64_t count, DType dtype);
  absl::Status AllReduce(void* buffer, int64_t count, DType dtype, ReduceOp op);
  absl::Status Broadcast(void* buffer, int64_t count, DType dtype, int root);

 private:
  bool direct() const { return !IsCuda(device_.kind()); }
  char* Fetch(std::vector<char>& to, const void* from, int64_t bytes);

  Device& device_;
  Stream& stream_;
  Communicator& comm_;
  // Kept from call to call.
  std::vector<char> whole_, part_;
};

}  // namespace delink
