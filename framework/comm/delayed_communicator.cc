#include "framework/comm/delayed_communicator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/comm/chain.h"

namespace delink {
namespace {

// One direction between two ranks, all that a rank sends, or the link of a
// group's collectives.
class Line {
 public:
  // When it begins to send what is posted `now`.
  int64_t Begin(const Link& link, int64_t now, int64_t bytes) {
    const MutexLock lock(mutex_);
    const int64_t begin = std::max(free_, now);
    free_ = begin + InNanoseconds(link.BusySeconds(bytes));
    return begin;
  }
  // When an operation is due that could begin at `ready`.
  int64_t Serve(const Link& link, int64_t ready, int64_t bytes) {
    const MutexLock lock(mutex_);
    free_ = std::max(free_, ready) + InNanoseconds(link.BusySeconds(bytes));
    return free_ + InNanoseconds(link.latency);
  }

 private:
  Mutex mutex_;
  int64_t free_ ABSL_GUARDED_BY(mutex_) = 0;
};

// An operation, and when its ranks have posted it.
struct Posted {
  std::vector<int64_t> at;
  int64_t due = 0;  // once all have
};

class Delayed final : public Pending {
 public:
  // `all`: the operation, and that `posted` is complete.
  Delayed(std::unique_ptr<Posted> posted, std::unique_ptr<Pending> all,
          const Nanoseconds& now)
      : posted_(std::move(posted)), all_(std::move(all)), now_(now) {}

 private:
  absl::StatusOr<bool> Poll() override {
    DELINK_ASSIGN_OR_RETURN(const bool done, all_->Test());
    return done && now_() >= posted_->due;
  }

  const std::unique_ptr<Posted> posted_;
  const std::unique_ptr<Pending> all_;
  const Nanoseconds& now_;
};

class DelayedCommunicator final : public Communicator {
 public:
  // `sends` and `receives` have the same ranks, which use them to tell each
  // other when they posted operations: `sends` for collectives and sends,
  // `receives` for receives.
  DelayedCommunicator(std::unique_ptr<Communicator> comm,
                      std::unique_ptr<Communicator> sends,
                      std::unique_ptr<Communicator> receives, const Link& link,
                      Nanoseconds now)
      : comm_(std::move(comm)),
        sends_(std::move(sends)),
        receives_(std::move(receives)),
        link_(link),
        now_(std::move(now)) {
    for (int rank = 0; rank < size(); ++rank) {
      to_.try_emplace(rank);
      from_.try_emplace(rank);
    }
  }

  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }

  std::unique_ptr<Pending> ReduceScatter(const void* send, void* recv,
                                         int64_t count, DType dtype,
                                         ReduceOp op) override {
    return OfAll(comm_->ReduceScatter(send, recv, count, dtype, op),
                 SentInParts(size() * count * SizeOf(dtype), size()));
  }

  std::unique_ptr<Pending> AllGather(void* buffer, int64_t count,
                                     DType dtype) override {
    return OfAll(comm_->AllGather(buffer, count, dtype),
                 SentInParts(size() * count * SizeOf(dtype), size()));
  }

  std::unique_ptr<Pending> AllReduce(void* buffer, int64_t count, DType dtype,
                                     ReduceOp op) override {
    return OfAll(comm_->AllReduce(buffer, count, dtype, op),
                 SentForSum(count * SizeOf(dtype), size()));
  }

  std::unique_ptr<Pending> Broadcast(void* buffer, int64_t count, DType dtype,
                                     int root) override {
    return OfAll(comm_->Broadcast(buffer, count, dtype, root),
                 count * SizeOf(dtype));
  }

  std::unique_ptr<Pending> Send(const void* buffer, int64_t count, DType dtype,
                                int peer, int tag) override {
    return OfTwo(comm_->Send(buffer, count, dtype, peer, tag), true, peer, tag,
                 count * SizeOf(dtype));
  }

  std::unique_ptr<Pending> Recv(void* buffer, int64_t count, DType dtype,
                                int peer, int tag) override {
    return OfTwo(comm_->Recv(buffer, count, dtype, peer, tag), false, peer, tag,
                 count * SizeOf(dtype));
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color,
                                                      int key) override {
    DELINK_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> part,
                            comm_->Split(color, key));
    return DelayExchanges(std::move(part), link_, now_);
  }

  void Abort(int code, std::string_view message) override {
    comm_->Abort(code, message);
  }

 private:
  std::unique_ptr<Pending> OfAll(std::unique_ptr<Pending> operation,
                                 int64_t bytes) {
    auto posted = std::make_unique<Posted>();
    posted->at.resize(size());
    posted->at[rank()] = now_();
    std::unique_ptr<Pending> told =
        sends_->AllGather(posted->at.data(), 1, DType::kI64);
    return Until(std::move(posted), std::move(operation), std::move(told),
                 &collectives_, bytes);
  }

  std::unique_ptr<Pending> OfTwo(std::unique_ptr<Pending> operation, bool sends,
                                 int peer, int tag, int64_t bytes) {
    auto posted = std::make_unique<Posted>();
    posted->at = {sends ? out_.Begin(link_, now_(), bytes) : now_(), 0};
    Communicator& own = sends ? *sends_ : *receives_;
    Communicator& other = sends ? *receives_ : *sends_;
    std::vector<std::unique_ptr<Pending>> both;
    both.push_back(own.Send(&posted->at[0], 1, DType::kI64, peer, tag));
    both.push_back(other.Recv(&posted->at[1], 1, DType::kI64, peer, tag));
    return Until(std::move(posted), std::move(operation), All(std::move(both)),
                 &(sends ? to_ : from_).at(peer), bytes);
  }

  // `told`: finished when all ranks have said when they posted it.
  std::unique_ptr<Pending> Until(std::unique_ptr<Posted> posted,
                                 std::unique_ptr<Pending> operation,
                                 std::unique_ptr<Pending> told, Line* line,
                                 int64_t bytes) {
    Posted* const at = posted.get();
    std::vector<std::unique_ptr<Pending>> all;
    all.push_back(std::move(operation));
    all.push_back(Chain(std::move(told),
                        {[this, at, line, bytes]() -> std::unique_ptr<Pending> {
                          const int64_t ready =
                              *std::max_element(at->at.begin(), at->at.end());
                          at->due = line->Serve(link_, ready, bytes);
                          return nullptr;
                        }}));
    return std::make_unique<Delayed>(std::move(posted), All(std::move(all)),
                                     now_);
  }

  const std::unique_ptr<Communicator> comm_, sends_, receives_;
  const Link link_;
  const Nanoseconds now_;
  Line collectives_, out_;
  std::map<int, Line> to_, from_;  // by rank
};

}  // namespace

int64_t SteadyNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t InNanoseconds(double seconds) { return std::llround(1e9 * seconds); }

absl::StatusOr<std::unique_ptr<Communicator>> DelayExchanges(
    std::unique_ptr<Communicator> comm, const Link& link, Nanoseconds now) {
  if (comm->size() == 1) return comm;
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> sends,
                          comm->Split(0, comm->rank()));
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> receives,
                          comm->Split(0, comm->rank()));
  if (now == nullptr) now = SteadyNow;
  return std::make_unique<DelayedCommunicator>(
      std::move(comm), std::move(sends), std::move(receives), link,
      std::move(now));
}

}  // namespace delink
