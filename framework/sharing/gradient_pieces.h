// Reads the gradients of a few tensors of one shape to the host as doubles, one
// piece at a time: the same elements of each, so that they can be added up
// without device memory. A rank gets the elements of the first tensor whose sum
// a reduction leaves on it (ReducedOf), also if the gradient is elsewhere
// because one rank owns the slab. Internal to framework/sharing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/module/mover.h"
#include "framework/module/store_values.h"

namespace delink {

class GradientPieces final : private ValueSource, private ValueSink {
 public:
  // Of elements that `within` has. Pieces have `most` elements a rank, the last
  // one fewer. Store and comm must outlive this.
  GradientPieces(const ParamStore& store,
                 std::vector<const LogicalTensor*> tensors, const Rect& within,
                 int64_t most, Communicator& comm);

  // Reads the next piece; false after the last piece of every rank. Collective.
  absl::StatusOr<bool> Next();

  // This rank's elements of tensors[i] in the piece, in their order in memory.
  std::span<const double> Of(size_t i) const { return pieces_[i]; }
  size_t size() const { return pieces_[0].size(); }

 private:
  DType type(const Field& field) const override;
  Descriptor Has(const Field& field,
                 const LogicalTensor& tensor) const override;
  Descriptor Owners(const Field& field,
                    const LogicalTensor& tensor) const override;
  absl::Status Read(const Field& field, const LogicalTensor& tensor,
                    const Extent& extent, void* values) override;
  Descriptor Wants(const Field& field,
                   const LogicalTensor& tensor) const override;
  absl::Status Write(const Field& field, const LogicalTensor& tensor,
                     const Extent& extent, const void* values) override;
  // The next elements that each rank gets, from begin_ of those within_ on.
  Descriptor NextOf(const Descriptor& reduced) const;

  const ParamStore& store_;
  StoreValues values_;
  std::vector<const LogicalTensor*> tensors_;
  Rect within_;
  int64_t most_;
  Communicator& comm_;
  std::vector<Move> moves_;
  int64_t begin_ = 0;
  Descriptor wanted_;  // offsets: in a piece
  std::vector<std::vector<double>> pieces_;
};

}  // namespace delink
