// Ranks that have a model's weights together, for passes forward: each some
// rows and columns of its matrices (tensor), some of its layers (pipeline), or
// both. Ranks along the data axis have the same.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/device/backend.h"
#include "framework/module/layout.h"
#include "framework/step/visit_groups.h"
#include "framework/tensor/tensor.h"

namespace delink {

class ForwardRanks {
 public:
  // Collective over `world`, the ranks of the layout, whose context is 1. All
  // that is given outlives it.
  static absl::StatusOr<std::unique_ptr<ForwardRanks>> Create(
      const Layout& layout, Device& device, Communicator& world);

  // What visits are to work on.
  Stream& stream() const { return *stream_; }
  // Of visits on this rank.
  VisitGroups groups() const { return visits_->groups(/*sequence=*/false); }
  // Whether the layer at that place is this rank's to visit.
  bool Has(size_t place) const { return StageOf(place) == stage_; }
  // The output of the layer at `place`, from the ranks that have that layer to
  // those of the next one. Blocks; does nothing after an error.
  void HandOn(size_t place, const Tensor& output);
  // Whether this rank is of those whose results count: of each place along the
  // data axis one, which has the last layer.
  bool counts() const;
  // Gives all ranks that have the weights together the bytes that those have
  // that counts().
  void Tell(void* bytes, int64_t count);
  // OK where all ranks that have the weights together bring OK, on each of
  // them.
  absl::Status Agree(const absl::Status& status) {
    return AgreeOnStatus(*together_, status);
  }
  // The first error.
  absl::Status status() const;

 private:
  ForwardRanks(const Layout& layout, Device& device)
      : layout_(layout), device_(device), stream_(device.NewStream()) {}
  int StageOf(size_t place) const;

  const Layout& layout_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  MeshPlace place_;
  int stage_ = 0;
  std::unique_ptr<StepVisitGroups> visits_;
  std::unique_ptr<Communicator> together_;  // of one place along the data axis
  std::unique_ptr<Communicator> pipeline_;  // null: there is one stage
  absl::Status status_;
};

}  // namespace delink
