// The tensors of a Hugging Face folder as the source of a move: our parameters,
// as f32. Each piece is read from its file, stacked and transposed as ours.
// Tensors are found by name: in a layout that shares, a shared tensor has the
// values of its leader.
//
// Every rank can read all values and reads those that it holds, so nothing
// crosses the network.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/module/value_end.h"
#include "recipes/huggingface/model_folder.h"
#include "recipes/huggingface/tensor_map.h"

namespace delink::huggingface {

class FolderValues final : public ValueSource {
 public:
  // A tensor of ours and the tensors it is read from.
  struct Source {
    struct From {
      Piece piece;
      safetensors::Folder::Tensor tensor;
    };
    Shape shape;
    std::vector<From> from;
  };

  // For the whole model as `registry` declares it, with the folder's config or
  // one of the same shapes; for layouts of `ranks` ranks. The folder must
  // outlive this. InvalidArgument, with a line for each tensor that is missing,
  // unknown to the model, of another shape or of an unsupported type, or for a
  // separate head if the config ties it. What is wrong alike with several
  // entries (TensorRule) is one line.
  static absl::StatusOr<FolderValues> Open(const ModelFolder& folder,
                                           const ParamRegistry& registry,
                                           int ranks);

  // By our names, without links.
  const std::map<std::string, Source>& sources() const { return sources_; }

  // kParameters alone.
  DType type(const Field&) const override { return DType::kF32; }
  Descriptor Has(const Field& field,
                 const LogicalTensor& tensor) const override;
  Descriptor Owners(const Field& field,
                    const LogicalTensor& tensor) const override;
  // Thread-safe.
  absl::Status Read(const Field& field, const LogicalTensor& tensor,
                    const Extent& extent, void* values) override;

 private:
  explicit FolderValues(int ranks) : ranks_(ranks) {}

  int ranks_;
  std::map<std::string, Source> sources_;
};

}  // namespace delink::huggingface
