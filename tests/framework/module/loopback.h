// Ranks one after the other in one thread: what a rank sends in the first round
// arrives in the second. For what neither depends on contents nor hangs: fast,
// so that there can be very many.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "framework/comm/communicator.h"

namespace delink::testing {

// By (source, target), in the order of posting.
using Transfers = std::map<std::pair<int, int>, std::vector<std::vector<char>>>;

class Loopback final : public Communicator {
 public:
  Loopback(Transfers& transfers, int rank, int size)
      : transfers_(transfers), rank_(rank), size_(size) {}

  // Whether all that was received had been sent.
  bool complete() const { return complete_; }
  // How much was received from a rank.
  size_t received(int peer) const {
    const auto at = received_.find(peer);
    return at == received_.end() ? 0 : at->second;
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  // Both use the buffer when they are waited for, as late as may be.
  std::unique_ptr<Pending> Send(const void* buffer, int64_t count, DType dtype,
                                int peer, int tag) override {
    DELINK_CHECK(peer != rank_ && peer < size_ && tag == 0);
    auto& sent = transfers_[{rank_, peer}];
    const size_t number = sent_[peer]++;
    if (number == sent.size()) sent.emplace_back();
    const auto bytes = static_cast<size_t>(count * SizeOf(dtype));
    return std::make_unique<Late>([&sent, number, buffer, bytes] {
      const char* const from = static_cast<const char*>(buffer);
      sent[number].assign(from, from + bytes);
    });
  }
  std::unique_ptr<Pending> Recv(void* buffer, int64_t count, DType dtype,
                                int peer, int tag) override {
    DELINK_CHECK(peer != rank_ && peer < size_ && tag == 0);
    const auto& sent = transfers_[{peer, rank_}];
    const size_t number = received_[peer]++;
    const auto bytes = static_cast<size_t>(count * SizeOf(dtype));
    std::memset(buffer, 0xff, bytes);  // what nobody may read yet
    if (number >= sent.size()) complete_ = false;
    return std::make_unique<Late>([&sent, number, buffer, bytes] {
      if (number >= sent.size()) return;
      DELINK_CHECK_EQ(sent[number].size(), bytes);
      std::memcpy(buffer, sent[number].data(), bytes);
    });
  }

  // Of the collectives only that all agree that nothing is wrong.
  std::unique_ptr<Pending> AllReduce(void* buffer, int64_t count, DType dtype,
                                     ReduceOp op) override {
    DELINK_CHECK(count == 1 && dtype == DType::kI64 && op == ReduceOp::kMin);
    DELINK_CHECK_EQ(*static_cast<int64_t*>(buffer), size_);
    return std::make_unique<Late>([] {});
  }
  std::unique_ptr<Pending> ReduceScatter(const void*, void*, int64_t, DType,
                                         ReduceOp) override {
    return None();
  }
  std::unique_ptr<Pending> AllGather(void*, int64_t, DType) override {
    return None();
  }
  std::unique_ptr<Pending> Broadcast(void*, int64_t, DType, int) override {
    return None();
  }
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int, int) override {
    DELINK_CHECK(false) << "one thread cannot wait for itself";
    return nullptr;
  }
  void Abort(int, std::string_view message) override {
    DELINK_CHECK(false) << message;
  }

 private:
  class Late final : public Pending {
   public:
    explicit Late(std::function<void()> act) : act_(std::move(act)) {}

   private:
    absl::StatusOr<bool> Poll() override {
      act_();
      return true;
    }
    const std::function<void()> act_;
  };

  static std::unique_ptr<Pending> None() {
    DELINK_CHECK(false) << "one thread cannot wait for itself";
    return nullptr;
  }

  Transfers& transfers_;
  const int rank_, size_;
  bool complete_ = true;
  std::map<int, size_t> sent_, received_;  // by peer
};

}  // namespace delink::testing
