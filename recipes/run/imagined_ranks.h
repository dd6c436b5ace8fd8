// The communicator of one rank that imagines the others: what a plan of many
// ranks is made on. Collectives complete at once and move nothing, so nobody
// may look at what they would have brought.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "framework/comm/self_communicator.h"

namespace delink {

class ImaginedRanks final : public SelfCommunicator {
 public:
  // Itself it is `rank` of them.
  explicit ImaginedRanks(int size, int rank = 0) : size_(size), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  // All ranks are imagined to stay together.
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int, int) override {
    return std::make_unique<ImaginedRanks>(size_, rank_);
  }

 private:
  int size_, rank_;
};

}  // namespace delink
