// The state that the ranks of a thread communicator share: the operations that
// wait for ranks, and the first failure. Internal to framework/comm.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/mutex.h"
#include "framework/comm/communicator.h"

namespace delink::comm {

// Shared by a communicator and everything split from it, so that a failure
// reaches ranks wherever they wait. Its mutex guards all of them.
struct ThreadFamily {
  Mutex mutex;
  bool failed ABSL_GUARDED_BY(mutex) = false;
  bool by_leaving ABSL_GUARDED_BY(mutex) = false;
  // Not a Status: its reference count would be shared between threads.
  absl::StatusCode code ABSL_GUARDED_BY(mutex) = absl::StatusCode::kOk;
  std::string message ABSL_GUARDED_BY(mutex);

  // Keeps the first failure. Only if that is a rank that left, the next failure
  // replaces it: the error that the rank then reports is the cause.
  void Fail(absl::StatusCode error, std::string_view text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status Failure() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
};

enum class OperationKind {
  kReduceScatter,
  kAllGather,
  kAllReduce,
  kBroadcast,
  kSplit,
  kTransfer
};

// The arguments on which all ranks must agree.
struct Signature {
  OperationKind kind;
  int64_t count = 0;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;

  bool operator==(const Signature&) const = default;
  std::string ToString() const;
};

// One rank's part in an operation.
struct Part {
  int rank = 0;
  const void* send = nullptr;
  void* recv = nullptr;
};

struct Operation {
  enum class State { kWaiting, kRunning, kDone };

  Signature signature;
  std::vector<Part> parts;  // in order of posting until complete
  State state = State::kWaiting;
};

class ThreadGroup : public std::enable_shared_from_this<ThreadGroup> {
 public:
  ThreadGroup(std::shared_ptr<ThreadFamily> family, int size);

  int size() const { return size_; }
  ThreadFamily& family() { return *family_; }

  // The rank's next collective; carried out here if it was the last to post.
  std::unique_ptr<Pending> Post(const Signature& signature, const Part& part);

  // One half of a transfer from `source` to `target`.
  std::unique_ptr<Pending> PostTransfer(const Signature& signature, int source,
                                        int target, int tag, const Part& part);

  // The rank will post nothing more.
  void Leave(int rank);

 private:
  using OperationPtr = std::shared_ptr<Operation>;

  std::unique_ptr<Pending> Finish(OperationPtr operation, bool run);
  void Run(Operation& operation);
  void Split(Operation& operation);

  void FailMismatch(std::string_view name, const Operation& operation,
                    const Signature& other, int rank)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(family_->mutex);
  void FailLeft(int rank, int waiting, std::string_view name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(family_->mutex);

  const std::shared_ptr<ThreadFamily> family_;
  const int size_;
  // By rank: how many collectives.
  std::vector<int64_t> posted_ ABSL_GUARDED_BY(family_->mutex);
  std::vector<bool> left_ ABSL_GUARDED_BY(family_->mutex);
  // By number.
  std::map<int64_t, OperationPtr> waiting_ ABSL_GUARDED_BY(family_->mutex);
  std::map<std::tuple<int, int, int>, std::deque<OperationPtr>> transfers_
      ABSL_GUARDED_BY(family_->mutex);
};

// What Split exchanges: Part::send is a SplitRequest, Part::recv a SplitResult.
struct SplitRequest {
  int color;
  int key;
};

struct SplitResult {
  std::shared_ptr<ThreadGroup> group;
  int rank = 0;
};

}  // namespace delink::comm
