// A group of ranks in a visit, for tests: over ranks that are threads, or of
// none, as the meta device needs it. Notes what it is asked for.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "framework/autograd/visit_group.h"
#include "framework/comm/communicator.h"

namespace delink::testing {

struct Exchange {
  enum class Kind : uint8_t {
    kAllGather,
    kReduceScatter,
    kAllToAll,
    kAllReduce
  };
  Kind kind;
  int64_t count;
  DType dtype;
  friend bool operator==(const Exchange&, const Exchange&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Exchange& e) {
    return out << int{static_cast<uint8_t>(e.kind)} << ": " << e.count << " "
               << delink::ToString(e.dtype);
  }
};

class NotedGroup final : public VisitGroup {
 public:
  // With a communicator, which it does not own, it exchanges.
  explicit NotedGroup(Communicator& comm)
      : NotedGroup(comm.rank(), comm.size()) {
    comm_ = &comm;
  }
  NotedGroup(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void AllGather(void* buffer, int64_t count, DType dtype) override {
    if (!Begin(Exchange::Kind::kAllGather, count, dtype)) return;
    status_ = comm_->AllGather(buffer, count, dtype)->Wait();
  }
  void ReduceScatter(const void* send, void* recv, int64_t count,
                     DType dtype) override {
    if (!Begin(Exchange::Kind::kReduceScatter, count, dtype)) return;
    status_ =
        comm_->ReduceScatter(send, recv, count, dtype, ReduceOp::kSum)->Wait();
  }
  int nodes() const override { return nodes_; }
  void set_nodes(int nodes) { nodes_ = nodes; }
  // The exchange writes to `recv` when it begins, and reads `send` when it
  // ends.
  int64_t BeginAllToAll(const void* send, void* recv, int64_t count,
                        DType dtype, Among among) override {
    const auto number = static_cast<int64_t>(begun_.size());
    begun_.push_back({send, recv, count, dtype, among});
    if (!Begin(Exchange::Kind::kAllToAll, CountOf(among) * count, dtype)) {
      begun_.back().count = 0;
    }
    const int64_t bytes = CountOf(among) * begun_.back().count * SizeOf(dtype);
    if (bytes > 0) std::memset(recv, 0xA5, static_cast<size_t>(bytes));
    return number;
  }
  void Finish(int64_t number) override {
    const Begun& begun = begun_[static_cast<size_t>(number)];
    if (begun.count == 0 || !status_.ok()) return;
    // Number i of those that exchange.
    const int each = size_ / nodes_;
    const auto rank_of = [&](int i) {
      return begun.among == Among::kAll     ? i
             : begun.among == Among::kNodes ? i * each + rank_ % each
                                            : rank_ / each * each + i;
    };
    const int64_t bytes = begun.count * SizeOf(begun.dtype);
    std::vector<std::unique_ptr<Pending>> posted;
    for (int i = 0; i < CountOf(begun.among); ++i) {
      const char* const out = static_cast<const char*>(begun.send) + i * bytes;
      char* const in = static_cast<char*>(begun.recv) + i * bytes;
      const int peer = rank_of(i);
      if (peer == rank_) {
        std::memcpy(in, out, static_cast<size_t>(bytes));
        continue;
      }
      posted.push_back(comm_->Send(out, begun.count, begun.dtype, peer, 0));
      posted.push_back(comm_->Recv(in, begun.count, begun.dtype, peer, 0));
    }
    for (const auto& one : posted) {
      if (const absl::Status status = one->Wait(); !status.ok()) {
        status_ = status;
      }
    }
  }
  void AllReduce(void* buffer, int64_t count, DType dtype,
                 Reduction reduction) override {
    if (!Begin(Exchange::Kind::kAllReduce, count, dtype)) return;
    const ReduceOp op =
        reduction == Reduction::kSum ? ReduceOp::kSum : ReduceOp::kMax;
    status_ = comm_->AllReduce(buffer, count, dtype, op)->Wait();
  }

  const absl::Status& status() const { return status_; }
  // Since the last call.
  std::vector<Exchange> TakeNotes() { return std::exchange(notes_, {}); }

 private:
  struct Begun {
    const void* send;
    void* recv;
    int64_t count;
    DType dtype;
    Among among;
  };

  bool Begin(Exchange::Kind kind, int64_t count, DType dtype) {
    notes_.push_back({kind, count, dtype});
    return comm_ != nullptr && status_.ok();
  }

  Communicator* comm_ = nullptr;
  int rank_, size_, nodes_ = 1;
  absl::Status status_;
  std::vector<Exchange> notes_;
  std::vector<Begun> begun_;
};

}  // namespace delink::testing
