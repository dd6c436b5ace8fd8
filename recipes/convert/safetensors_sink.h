// Safetensors files as the sink of a move. Each piece of our parameters is
// unstacked, transposed, put in the family's order of rows, and rounded, as the
// family's table says.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/module/value_end.h"
#include "framework/safetensors/writer.h"
#include "recipes/huggingface/tensor_map.h"

namespace delink {

// A tensor of theirs, and a piece of one of ours that is in it.
struct ExportTarget {
  size_t tensor = 0;  // in the writer's plan
  huggingface::Piece piece;
};
// By the name of ours; in the order of its rows.
using ExportTargets = std::map<std::string, std::vector<ExportTarget>>;

class SafetensorsSink final : public ValueSink {
 public:
  // The writer and targets outlive this; several sinks may share them, one per
  // thread. `pairs`: the width of heads whose elements 2 i and 2 i + 1 turn
  // together; 0: none do (Family::interleaved). `written` counts values.
  SafetensorsSink(safetensors::Writer& writer, const ExportTargets& targets,
                  int64_t pairs, std::atomic<int64_t>& written)
      : writer_(writer), targets_(targets), pairs_(pairs), written_(written) {}

  // Restricts the next tensor to this rectangle.
  void Only(const Rect& rect) { only_ = rect; }

  // kParameters alone.
  DType type(const Field&) const override { return DType::kF32; }
  Descriptor Wants(const Field& field,
                   const LogicalTensor& tensor) const override;
  // InvalidArgument: a finite value that is too large for the type of the
  // files. Skips values of files that are complete.
  absl::Status Write(const Field& field, const LogicalTensor& tensor,
                     const Extent& extent, const void* values) override;

 private:
  // Some rows of a piece, packed; counted from the piece's own begin.
  struct Part {
    const ExportTarget* target;
    int64_t row, rows;
    int64_t column, columns;  // of `width`
    int64_t width;
    const float* values;
  };

  absl::Status PutRows(const Part& part);
  absl::Status PutPairs(const Part& part);
  absl::Status PutTransposed(const Part& part);
  absl::Status Put(const ExportTarget& target, int64_t first,
                   std::span<const float> values);

  safetensors::Writer& writer_;
  const ExportTargets& targets_;
  const int64_t pairs_;
  std::atomic<int64_t>& written_;
  std::optional<Rect> only_;  // else all
  // Scratch for one piece.
  std::vector<float> moved_;
  std::vector<char> narrow_;
};

}  // namespace delink
