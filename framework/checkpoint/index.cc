#include "framework/checkpoint/index.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/frame.h"
#include "framework/checkpoint/layout.h"
#include "framework/hdf5/hdf5.h"

namespace delink::checkpoint {
namespace {

absl::Status WriteHeader(hdf5::File& file, CheckpointHeader header) {
  NamedValues values = std::move(header.values);
  PutValues(IdentityOf(header), values);
  values[kSharedGradient] = std::string("sum");
  return WriteValues(values, file);
}

// Adds a flat range; joins it to the last one if both are contiguous in the
// file.
void AddPiece(const hdf5::Piece& piece, std::vector<hdf5::Piece>& pieces) {
  hdf5::Piece* const last = pieces.empty() ? nullptr : &pieces.back();
  if (last != nullptr && last->file == piece.file &&
      last->dataset == piece.dataset && last->end == piece.begin &&
      last->offset + (last->end - last->begin) == piece.offset) {
    last->end = piece.end;
  } else {
    pieces.push_back(piece);
  }
}

// Where a field of a tensor is in the writers' files. `parts` are those of its
// slab.
std::vector<hdf5::Piece> PiecesOf(const FilePlan& plan, const Field& field,
                                  const FilePlan::Parts& parts,
                                  const LogicalTensor& tensor) {
  const Rect whole = WholeOf(plan.ShapeOf(field, tensor));
  std::vector<hdf5::Piece> pieces;
  for (const Extent& extent : plan.Writers(field, tensor)) {
    const OwnedPart::Values& there =
        parts.at({extent.rank, extent.slab}).params[extent.param];
    const Rect& rect = extent.rect;
    const bool together =
        rect.columns == whole.columns && rect.columns == extent.pitch;
    const int64_t rows = together ? 1 : rect.rows;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t begin = (rect.row + row) * whole.columns + rect.column;
      AddPiece({.begin = begin,
                .end = begin + rect.elements() / rows,
                .file = WriterName(extent.rank),
                .dataset = plan.DatasetOf(field, extent.slab),
                .offset = there.at + extent.offset - there.first +
                          row * extent.pitch},
               pieces);
    }
  }
  return pieces;
}

// By slab, the parts of the plan's fields, for as long as tensors of the slab
// are to come.
using SlabParts = std::map<int, std::vector<FilePlan::Parts>>;

absl::Status ShowTensor(hdf5::File& file, const FilePlan& plan,
                        const ModelValues& model, const LogicalTensor& tensor,
                        SlabParts& known) {
  std::vector<FilePlan::Parts>& parts = known[tensor.slab];
  if (parts.empty()) {
    for (const Field& field : plan.fields()) {
      parts.push_back(plan.PartsOf(field, tensor.slab));
    }
  }
  for (size_t f = 0; f < plan.fields().size(); ++f) {
    const Field& field = plan.fields()[f];
    const Shape shape = plan.ShapeOf(field, tensor);
    if (shape.elements() == 0) continue;
    DELINK_RETURN_IF_ERROR(
        file.CreateVirtual(PathOf(field, tensor), ElementOf(model.type),
                           {shape.dims().begin(), shape.dims().end()},
                           PiecesOf(plan, field, parts[f], tensor)));
  }
  if (tensor.param + 1 == plan.tensors(tensor.slab).size()) {
    known.erase(tensor.slab);
  }
  const std::string group = StateGroup(tensor.name);
  DELINK_RETURN_IF_ERROR(file.CreateGroup(group));
  return file.SetInt(group, "updates", At(model.updates, tensor.slab));
}

}  // namespace

absl::Status WriteIndex(const std::string& path, const CheckpointHeader& header,
                        const FilePlan& plan, const ModelValues& model,
                        const Frames& frames) {
  DELINK_ASSIGN_OR_RETURN(hdf5::File file, hdf5::File::Create(path));
  DELINK_RETURN_IF_ERROR(WriteHeader(file, header));
  DELINK_RETURN_IF_ERROR(WriteFrames(frames, file));
  SlabParts parts;
  for (const LogicalTensor& tensor : plan.layout().tensors()) {
    if (tensor.link.empty()) {
      DELINK_RETURN_IF_ERROR(ShowTensor(file, plan, model, tensor, parts));
      continue;
    }
    DELINK_RETURN_IF_ERROR(
        file.CreateSoftLink(TensorPath(tensor.link), TensorPath(tensor.name)));
    DELINK_RETURN_IF_ERROR(
        file.CreateSoftLink(StateGroup(tensor.link), StateGroup(tensor.name)));
  }
  return file.Close();
}

}  // namespace delink::checkpoint
