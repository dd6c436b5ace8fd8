// What the ranks of a thread communicator share: the operations that wait for
// somebody, and the first failure. Internal to framework/comm.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "framework/comm/communicator.h"

namespace delink::comm {

// Shared by a communicator and everything split from it, so that a failure
// reaches ranks wherever they wait. Its mutex guards all of them.
struct ThreadFamily {
  std::mutex mutex;
  bool failed = false;
  bool by_leaving = false;
  // Not a Status: its reference count would be shared between threads.
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;

  // The first failure stays, except that a rank which left is only the
  // consequence of what the rank then reports. The mutex is held.
  void Fail(absl::StatusCode error, std::string_view text);
  absl::Status Failure() const;
};

enum class OperationKind {
  kReduceScatter,
  kAllGather,
  kAllReduce,
  kBroadcast,
  kSplit,
  kTransfer
};

// What all ranks have to say alike.
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

  // These two with the mutex held.
  void FailMismatch(std::string_view name, const Operation& operation,
                    const Signature& other, int rank);
  void FailLeft(int rank, int waiting, std::string_view name);

  const std::shared_ptr<ThreadFamily> family_;
  const int size_;
  // All below: under family_->mutex.
  std::vector<int64_t> posted_;  // by rank: how many collectives
  std::vector<bool> left_;
  std::map<int64_t, OperationPtr> waiting_;  // by number
  std::map<std::tuple<int, int, int>, std::deque<OperationPtr>> transfers_;
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
