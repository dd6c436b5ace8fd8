#include "framework/comm/communicator.h"

#include "absl/strings/str_format.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/comm/backoff.h"

namespace delink {
namespace {

template <typename T>
absl::StatusOr<T> ReduceOne(Communicator& comm, T value, DType dtype,
                            ReduceOp op) {
  DELINK_RETURN_IF_ERROR(comm.AllReduce(&value, 1, dtype, op)->Wait());
  return value;
}

}  // namespace

Pending::~Pending() {
  DELINK_CHECK(finished_) << "an operation of a communicator was dropped while "
                             "its buffers were in use: Wait for it first";
}

absl::StatusOr<bool> Pending::Test() {
  if (!finished_) {
    absl::StatusOr<bool> done = Poll();
    if (done.ok() && !*done) return false;
    status_ = done.status();
    finished_ = true;
  }
  if (!status_.ok()) return status_;
  return true;
}

absl::Status Pending::Wait() {
  Backoff backoff;
  while (true) {
    DELINK_ASSIGN_OR_RETURN(const bool done, Test());
    if (done) return absl::OkStatus();
    backoff.Pause();
  }
}

absl::Status Barrier(Communicator& comm) {
  return AllReduceScalar(comm, int64_t{0}, ReduceOp::kMax).status();
}

absl::StatusOr<double> AllReduceScalar(Communicator& comm, double value,
                                       ReduceOp op) {
  return ReduceOne(comm, value, DType::kF64, op);
}

absl::StatusOr<int64_t> AllReduceScalar(Communicator& comm, int64_t value,
                                        ReduceOp op) {
  return ReduceOne(comm, value, DType::kI64, op);
}

absl::Status AgreeOnStatus(Communicator& comm, const absl::Status& status) {
  const int64_t mine = status.ok() ? comm.size() : comm.rank();
  DELINK_ASSIGN_OR_RETURN(const int64_t first,
                          AllReduceScalar(comm, mine, ReduceOp::kMin));
  if (first == comm.size()) return absl::OkStatus();
  const int root = static_cast<int>(first);
  int64_t code = static_cast<int64_t>(status.code());
  DELINK_RETURN_IF_ERROR(comm.Broadcast(&code, 1, DType::kI64, root)->Wait());
  const std::string_view text(status.message().data(), status.message().size());
  DELINK_ASSIGN_OR_RETURN(const std::string message,
                          BroadcastString(comm, text, root));
  // A single rank needs no number, and an agreed message has one already.
  if (comm.size() == 1) return status;
  if (message.starts_with("rank ")) {
    return absl::Status(static_cast<absl::StatusCode>(code), message);
  }
  return absl::Status(static_cast<absl::StatusCode>(code),
                      absl::StrFormat("rank %d: %s", root, message));
}

absl::StatusOr<std::string> BroadcastString(Communicator& comm,
                                            std::string_view text, int root) {
  const bool is_root = comm.rank() == root;
  int64_t length = is_root ? static_cast<int64_t>(text.size()) : 0;
  DELINK_RETURN_IF_ERROR(comm.Broadcast(&length, 1, DType::kI64, root)->Wait());
  std::string result = is_root ? std::string(text) : std::string(length, '\0');
  DELINK_RETURN_IF_ERROR(
      comm.Broadcast(result.data(), length, DType::kU8, root)->Wait());
  return result;
}

}  // namespace delink
