// The tensors of a checkpoint as the source of a move: its parameters and
// states, read through index.h5 piece by piece. A tensor is found by its own
// name, and links are followed: a model that shares less than the checkpoint
// gets copies of shared tensors. A checkpoint of another model can be read as
// this one's (SavedAs).
//
// Every rank reads what it holds: the source offers all values on every rank,
// so nothing crosses the network. The checkpoint must be verified.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/checkpoint/saved_as.h"
#include "framework/hdf5/hdf5.h"
#include "framework/module/state_spec.h"
#include "framework/module/value_end.h"

namespace delink {

class CheckpointValues : public ValueSource {
 public:
  // `layout` and `states` describe the caller's model; `layout` must outlive
  // this. `type`: of values, kF32 or kF64.
  static absl::StatusOr<CheckpointValues> Open(const std::string& path,
                                               const Layout& layout,
                                               std::vector<StateSpec> states,
                                               DType type,
                                               SavedAs saved_as = {});

  // Below, a tensor must not begin fresh (SavedAs).
  // Checks that the checkpoint has a field of a tensor, in the model's shape
  // and of this type. Errors say what to do.
  absl::Status Check(const Field& field, const LogicalTensor& tensor);
  // Where the parameters of a checked tensor are in the writers' files.
  absl::StatusOr<std::vector<hdf5::Piece>> Pieces(const LogicalTensor& tensor);
  // How often the tensor's slab has been updated.
  absl::StatusOr<int64_t> Updates(const LogicalTensor& tensor) const;

  // kParameters and kState.
  DType type(const Field&) const override { return type_; }
  Descriptor Has(const Field& field,
                 const LogicalTensor& tensor) const override;
  Descriptor Owners(const Field& field,
                    const LogicalTensor& tensor) const override;
  absl::Status Read(const Field& field, const LogicalTensor& tensor,
                    const Extent& extent, void* values) override;

 private:
  CheckpointValues(std::string path, hdf5::File file, const Layout& layout,
                   std::vector<StateSpec> states, DType type, SavedAs saved_as);
  // The tensor as it is saved.
  LogicalTensor Saved(const LogicalTensor& tensor) const;
  Shape ShapeOf(const Field& field, const LogicalTensor& tensor) const;
  // All values on the first `ranks` ranks.
  Descriptor On(int ranks, const Field& field,
                const LogicalTensor& tensor) const;
  // Opens a dataset of a saved tensor, unless it was opened last.
  absl::StatusOr<const hdf5::Dataset*> Open(const Field& field,
                                            const LogicalTensor& saved);
  // Reads an extent of copies of a dataset of `each` values.
  absl::Status ReadCopies(const hdf5::Dataset& dataset, int64_t each,
                          const Extent& extent, void* values) const;

  std::string path_;
  hdf5::File file_;
  const Layout* layout_;
  std::vector<StateSpec> states_;
  DType type_;
  SavedAs saved_as_;
  std::string opened_;  // the path in the file
  std::optional<hdf5::Dataset> dataset_;
};

}  // namespace delink
