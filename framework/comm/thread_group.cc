#include "framework/comm/thread_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "framework/base/check.h"
#include "framework/comm/reduce.h"

namespace delink::comm {
namespace {

class ThreadPending : public Pending {
 public:
  ThreadPending(std::shared_ptr<ThreadGroup> group,
                std::shared_ptr<Operation> operation)
      : group_(std::move(group)), operation_(std::move(operation)) {}

 private:
  absl::StatusOr<bool> Poll() override {
    ThreadFamily& family = group_->family();
    const MutexLock lock(family.mutex);
    switch (operation_->state) {
      case Operation::State::kDone:
        return true;
      case Operation::State::kRunning:
        // Buffers are in use, whatever failed in the meantime.
        return false;
      case Operation::State::kWaiting:
        break;
    }
    if (family.failed) return family.Failure();
    return false;
  }

  const std::shared_ptr<ThreadGroup> group_;
  const std::shared_ptr<Operation> operation_;
};

char* Offset(void* base, int64_t bytes) {
  return static_cast<char*>(base) + bytes;
}

const char* Offset(const void* base, int64_t bytes) {
  return static_cast<const char*>(base) + bytes;
}

void Copy(void* target, const void* source, int64_t bytes) {
  if (bytes > 0) std::memcpy(target, source, bytes);
}

// Parts are in order of ranks in all of these.
void RunReduceScatter(const Operation& operation) {
  const Signature& s = operation.signature;
  const int64_t bytes = s.count * SizeOf(s.dtype);
  std::vector<const void*> sources(operation.parts.size());
  for (const Part& target : operation.parts) {
    for (const Part& source : operation.parts) {
      sources[source.rank] = Offset(source.send, target.rank * bytes);
    }
    Reduce(sources, target.recv, s.count, s.dtype, s.op);
  }
}

void RunAllGather(const Operation& operation) {
  const Signature& s = operation.signature;
  const int64_t bytes = s.count * SizeOf(s.dtype);
  for (const Part& target : operation.parts) {
    for (const Part& source : operation.parts) {
      if (source.rank == target.rank) continue;
      const int64_t at = source.rank * bytes;
      Copy(Offset(target.recv, at), Offset(source.recv, at), bytes);
    }
  }
}

void RunAllReduce(const Operation& operation) {
  const Signature& s = operation.signature;
  std::vector<const void*> sources;
  for (const Part& part : operation.parts) sources.push_back(part.recv);
  void* sum = operation.parts.front().recv;
  Reduce(sources, sum, s.count, s.dtype, s.op);
  for (const Part& part : operation.parts) {
    if (part.rank != 0) Copy(part.recv, sum, s.count * SizeOf(s.dtype));
  }
}

void RunBroadcast(const Operation& operation) {
  const Signature& s = operation.signature;
  const void* source = operation.parts[s.root].recv;
  for (const Part& part : operation.parts) {
    if (part.rank != s.root) {
      Copy(part.recv, source, s.count * SizeOf(s.dtype));
    }
  }
}

void RunTransfer(const Operation& operation) {
  const Signature& s = operation.signature;
  const bool first_sends = operation.parts[0].send != nullptr;
  const Part& from = operation.parts[first_sends ? 0 : 1];
  const Part& to = operation.parts[first_sends ? 1 : 0];
  Copy(to.recv, from.send, s.count * SizeOf(s.dtype));
}

std::string_view Name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
  }
  return "?";
}

}  // namespace

void ThreadFamily::Fail(absl::StatusCode error, std::string_view text) {
  if (failed && !by_leaving) return;
  failed = true;
  by_leaving = false;
  code = error;
  message = text;
}

absl::Status ThreadFamily::Failure() const {
  return absl::Status(code, message);
}

std::string Signature::ToString() const {
  const std::string elements =
      absl::StrFormat("%d x %s", count, delink::ToString(dtype));
  switch (kind) {
    case OperationKind::kReduceScatter:
      return absl::StrFormat("ReduceScatter(%s, %s)", elements, Name(op));
    case OperationKind::kAllGather:
      return absl::StrFormat("AllGather(%s)", elements);
    case OperationKind::kAllReduce:
      return absl::StrFormat("AllReduce(%s, %s)", elements, Name(op));
    case OperationKind::kBroadcast:
      return absl::StrFormat("Broadcast(%s, root %d)", elements, root);
    case OperationKind::kSplit:
      return "Split";
    case OperationKind::kTransfer:
      return elements;
  }
  return "?";
}

ThreadGroup::ThreadGroup(std::shared_ptr<ThreadFamily> family, int size)
    : family_(std::move(family)), size_(size), posted_(size), left_(size) {}

std::unique_ptr<Pending> ThreadGroup::Post(const Signature& signature,
                                           const Part& part) {
  OperationPtr operation;
  bool run = false;
  {
    const MutexLock lock(family_->mutex);
    const int64_t number = posted_[part.rank]++;
    OperationPtr& entry = waiting_[number];
    if (entry == nullptr) {
      entry = std::make_shared<Operation>();
      entry->signature = signature;
    }
    operation = entry;
    operation->parts.push_back(part);
    if (operation->signature != signature) {
      FailMismatch(absl::StrFormat("collective %d of %d ranks", number, size_),
                   *operation, signature, part.rank);
    }
    for (int rank = 0; rank < size_; ++rank) {
      if (left_[rank] && posted_[rank] <= number) {
        FailLeft(rank, part.rank, signature.ToString());
      }
    }
    const bool complete = operation->parts.size() == static_cast<size_t>(size_);
    if (complete) waiting_.erase(number);
    run = complete && !family_->failed;
    if (run) {
      operation->state = Operation::State::kRunning;
      std::ranges::sort(operation->parts, {}, &Part::rank);
    }
  }
  return Finish(std::move(operation), run);
}

std::unique_ptr<Pending> ThreadGroup::PostTransfer(const Signature& signature,
                                                   int source, int target,
                                                   int tag, const Part& part) {
  const std::string name = absl::StrFormat(
      "transfer from rank %d to rank %d, tag %d", source, target, tag);
  OperationPtr operation;
  bool run = false;
  {
    const MutexLock lock(family_->mutex);
    // All that wait in a queue are on the same side.
    auto& queue = transfers_[{source, target, tag}];
    if (queue.empty() || queue.front()->parts.front().rank == part.rank) {
      operation = std::make_shared<Operation>();
      operation->signature = signature;
      operation->parts.push_back(part);
      queue.push_back(operation);
      const int peer = part.rank == source ? target : source;
      if (left_[peer]) FailLeft(peer, part.rank, name);
    } else {
      operation = queue.front();
      queue.pop_front();
      operation->parts.push_back(part);
      if (operation->signature != signature) {
        FailMismatch(name, *operation, signature, part.rank);
      }
      run = !family_->failed;
      if (run) operation->state = Operation::State::kRunning;
    }
  }
  return Finish(std::move(operation), run);
}

std::unique_ptr<Pending> ThreadGroup::Finish(OperationPtr operation, bool run) {
  if (run) {
    Run(*operation);
    const MutexLock lock(family_->mutex);
    operation->state = Operation::State::kDone;
  }
  return std::make_unique<ThreadPending>(shared_from_this(),
                                         std::move(operation));
}

void ThreadGroup::FailMismatch(std::string_view name,
                               const Operation& operation,
                               const Signature& other, int rank) {
  family_->Fail(
      absl::StatusCode::kInternal,
      absl::StrFormat("%s differs: rank %d posted %s, rank %d posted %s", name,
                      operation.parts.front().rank,
                      operation.signature.ToString(), rank, other.ToString()));
}

void ThreadGroup::FailLeft(int rank, int waiting, std::string_view name) {
  if (family_->failed) return;
  family_->Fail(
      absl::StatusCode::kAborted,
      absl::StrFormat(
          "rank %d left after %d collectives; rank %d waits for it in %s", rank,
          posted_[rank], waiting, name));
  family_->by_leaving = true;
}

void ThreadGroup::Run(Operation& operation) {
  switch (operation.signature.kind) {
    case OperationKind::kReduceScatter:
      return RunReduceScatter(operation);
    case OperationKind::kAllGather:
      return RunAllGather(operation);
    case OperationKind::kAllReduce:
      return RunAllReduce(operation);
    case OperationKind::kBroadcast:
      return RunBroadcast(operation);
    case OperationKind::kSplit:
      return Split(operation);
    case OperationKind::kTransfer:
      return RunTransfer(operation);
  }
}

void ThreadGroup::Split(Operation& operation) {
  std::map<int, std::vector<const Part*>> colors;
  const auto request = [](const Part* part) {
    return static_cast<const SplitRequest*>(part->send);
  };
  for (const Part& part : operation.parts) {
    colors[request(&part)->color].push_back(&part);
  }
  for (auto& [color, members] : colors) {
    std::ranges::stable_sort(
        members, {}, [&](const Part* part) { return request(part)->key; });
    const auto group = std::make_shared<ThreadGroup>(
        family_, static_cast<int>(members.size()));
    for (size_t i = 0; i < members.size(); ++i) {
      *static_cast<SplitResult*>(members[i]->recv) = {group,
                                                      static_cast<int>(i)};
    }
  }
}

void ThreadGroup::Leave(int rank) {
  const MutexLock lock(family_->mutex);
  left_[rank] = true;
  for (const auto& [number, operation] : waiting_) {
    if (number < posted_[rank]) continue;
    FailLeft(rank, operation->parts.front().rank,
             operation->signature.ToString());
  }
  for (const auto& [ends, queue] : transfers_) {
    const auto& [source, target, tag] = ends;
    if (queue.empty() || (rank != source && rank != target)) continue;
    const int waiting = queue.front()->parts.front().rank;
    if (waiting == rank) continue;
    FailLeft(rank, waiting,
             absl::StrFormat("a transfer from rank %d to rank %d, tag %d",
                             source, target, tag));
  }
}

}  // namespace delink::comm
