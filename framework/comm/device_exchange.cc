#include "framework/comm/device_exchange.h"

#include "framework/base/status_macros.h"

namespace delink {

// The host's copy of device memory; complete once the stream is done.
char* DeviceExchange::Fetch(std::vector<char>& to, const void* from,
                            int64_t bytes) {
  to.resize(static_cast<size_t>(bytes));
  device_.CopyToHost(stream_, to.data(), from, bytes);
  return to.data();
}

absl::Status DeviceExchange::ReduceScatter(const void* send, void* recv,
                                           int64_t count, DType dtype,
                                           ReduceOp op) {
  if (direct()) {
    stream_.Synchronize();
    return comm_.ReduceScatter(send, recv, count, dtype, op)->Wait();
  }
  const int64_t bytes = count * SizeOf(dtype);
  const char* const all = Fetch(whole_, send, comm_.size() * bytes);
  part_.resize(static_cast<size_t>(bytes));
  stream_.Synchronize();
  DELINK_RETURN_IF_ERROR(
      comm_.ReduceScatter(all, part_.data(), count, dtype, op)->Wait());
  device_.CopyFromHost(stream_, recv, part_.data(), bytes);
  stream_.Synchronize();
  return absl::OkStatus();
}

absl::Status DeviceExchange::AllGather(void* buffer, int64_t count,
                                       DType dtype) {
  if (direct()) {
    stream_.Synchronize();
    return comm_.AllGather(buffer, count, dtype)->Wait();
  }
  const int64_t bytes = count * SizeOf(dtype);
  whole_.resize(static_cast<size_t>(comm_.size() * bytes));
  char* const own = whole_.data() + comm_.rank() * bytes;
  device_.CopyToHost(stream_, own,
                     static_cast<const char*>(buffer) + comm_.rank() * bytes,
                     bytes);
  stream_.Synchronize();
  DELINK_RETURN_IF_ERROR(comm_.AllGather(whole_.data(), count, dtype)->Wait());
  device_.CopyFromHost(stream_, buffer, whole_.data(), comm_.size() * bytes);
  stream_.Synchronize();
  return absl::OkStatus();
}

absl::Status DeviceExchange::AllReduce(void* buffer, int64_t count, DType dtype,
                                       ReduceOp op) {
  if (direct()) {
    stream_.Synchronize();
    return comm_.AllReduce(buffer, count, dtype, op)->Wait();
  }
  const int64_t bytes = count * SizeOf(dtype);
  char* const all = Fetch(whole_, buffer, bytes);
  stream_.Synchronize();
  DELINK_RETURN_IF_ERROR(comm_.AllReduce(all, count, dtype, op)->Wait());
  device_.CopyFromHost(stream_, buffer, all, bytes);
  stream_.Synchronize();
  return absl::OkStatus();
}

absl::Status DeviceExchange::Broadcast(void* buffer, int64_t count, DType dtype,
                                       int root) {
  if (direct()) {
    stream_.Synchronize();
    return comm_.Broadcast(buffer, count, dtype, root)->Wait();
  }
  const int64_t bytes = count * SizeOf(dtype);
  char* const all = Fetch(whole_, buffer, bytes);
  stream_.Synchronize();
  DELINK_RETURN_IF_ERROR(comm_.Broadcast(all, count, dtype, root)->Wait());
  device_.CopyFromHost(stream_, buffer, all, bytes);
  stream_.Synchronize();
  return absl::OkStatus();
}

}  // namespace delink
