// The communicator of one rank that imagines the others, to plan for many ranks
// in one process. Collectives complete at once and move nothing, so their
// results must not be used.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "framework/comm/self_communicator.h"

namespace delink {

class ImaginedRanks final : public SelfCommunicator {
 public:
  // This rank is `rank` of them.
  explicit ImaginedRanks(int size, int rank = 0) : size_(size), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  // All ranks stay together.
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int, int) override {
    return std::make_unique<ImaginedRanks>(size_, rank_);
  }

 private:
  int size_, rank_;
};

}  // namespace delink
