// Gradients of a few tensors of one shape on their way through the host, as
// doubles, a piece at a time: the same elements of each, to be added up where
// no device has room for the sum. A rank gets the elements that a reduction
// leaves there of the first tensor (ReducedOf). Internal to framework/sharing.
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
  // Pieces are of `most` elements a rank, but for its last. All that is given
  // must outlive this.
  GradientPieces(const ParamStore& store,
                 std::vector<const LogicalTensor*> tensors, int64_t most,
                 Communicator& comm);

  // Brings the next piece; false behind the last one of any rank. All ranks
  // call it alike.
  absl::StatusOr<bool> Next();

  // Of tensors[i] this rank's elements in the piece, in the order in which they
  // lie there.
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
  // Elements from begin_ on of what each rank gets.
  Descriptor NextOf(const Descriptor& reduced) const;

  const ParamStore& store_;
  StoreValues values_;
  std::vector<const LogicalTensor*> tensors_;
  int64_t most_;
  Communicator& comm_;
  std::vector<Move> moves_;
  int64_t begin_ = 0;
  Descriptor wanted_;  // offsets: in a piece
  std::vector<std::vector<double>> pieces_;
};

}  // namespace delink
