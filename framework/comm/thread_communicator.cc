#include "framework/comm/thread_communicator.h"

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/comm/arguments.h"
#include "framework/comm/thread_group.h"

namespace delink {
namespace comm {
namespace {

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  ~ThreadCommunicator() override { group_->Leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  std::unique_ptr<Pending> ReduceScatter(const void* send, void* recv,
                                         int64_t count, DType dtype,
                                         ReduceOp op) override {
    CheckReduceScatter(count, dtype);
    return group_->Post({OperationKind::kReduceScatter, count, dtype, op},
                        {rank_, send, recv});
  }

  std::unique_ptr<Pending> AllGather(void* buffer, int64_t count,
                                     DType dtype) override {
    CheckCount(count);
    return group_->Post({OperationKind::kAllGather, count, dtype},
                        {rank_, nullptr, buffer});
  }

  std::unique_ptr<Pending> AllReduce(void* buffer, int64_t count, DType dtype,
                                     ReduceOp op) override {
    CheckAllReduce(count, dtype);
    return group_->Post({OperationKind::kAllReduce, count, dtype, op},
                        {rank_, nullptr, buffer});
  }

  std::unique_ptr<Pending> Broadcast(void* buffer, int64_t count, DType dtype,
                                     int root) override {
    CheckCount(count);
    CheckRoot(*this, root);
    return group_->Post(
        {OperationKind::kBroadcast, count, dtype, ReduceOp::kSum, root},
        {rank_, nullptr, buffer});
  }

  std::unique_ptr<Pending> Send(const void* buffer, int64_t count, DType dtype,
                                int peer, int tag) override {
    CheckCount(count);
    CheckPeer(*this, peer, tag);
    return group_->PostTransfer({OperationKind::kTransfer, count, dtype}, rank_,
                                peer, tag, {rank_, buffer, nullptr});
  }

  std::unique_ptr<Pending> Recv(void* buffer, int64_t count, DType dtype,
                                int peer, int tag) override {
    CheckCount(count);
    CheckPeer(*this, peer, tag);
    return group_->PostTransfer({OperationKind::kTransfer, count, dtype}, peer,
                                rank_, tag, {rank_, nullptr, buffer});
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color,
                                                      int key) override {
    CheckColor(color);
    const SplitRequest request{color, key};
    SplitResult result;
    DELINK_RETURN_IF_ERROR(
        group_->Post({OperationKind::kSplit}, {rank_, &request, &result})
            ->Wait());
    return std::make_unique<ThreadCommunicator>(result.group, result.rank);
  }

  void Abort(int, std::string_view message) override {
    ThreadFamily& family = group_->family();
    const MutexLock lock(family.mutex);
    family.Fail(absl::StatusCode::kAborted,
                absl::StrFormat("rank %d: %s", rank_, message));
  }

 private:
  const std::shared_ptr<ThreadGroup> group_;
  const int rank_;
};

// Whether a rank only returns the failure that all ranks were told.
bool IsFailure(const absl::Status& status, const ThreadFamily& family)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(family.mutex) {
  return family.failed && status.message() == family.message;
}

}  // namespace
}  // namespace comm

absl::Status RunRanks(
    int size, const std::function<absl::Status(Communicator&)>& rank_main) {
  DELINK_CHECK_GT(size, 0);
  const auto family = std::make_shared<comm::ThreadFamily>();
  const auto group = std::make_shared<comm::ThreadGroup>(family, size);
  bool failed = false;  // under family->mutex
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      comm::ThreadCommunicator communicator(group, rank);
      const absl::Status status = rank_main(communicator);
      if (status.ok()) return;
      const MutexLock lock(family->mutex);
      failed = true;
      if (comm::IsFailure(status, *family)) return;
      const std::string message(status.message());
      family->Fail(status.code(),
                   absl::StrFormat("rank %d: %s", rank, message));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const MutexLock lock(family->mutex);
  return failed ? family->Failure() : absl::OkStatus();
}

}  // namespace delink
