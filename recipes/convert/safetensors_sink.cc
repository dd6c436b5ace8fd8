#include "recipes/convert/safetensors_sink.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"

namespace delink {

using safetensors::PlannedTensor;
using safetensors::Type;

Descriptor SafetensorsSink::Wants(const Field&,
                                  const LogicalTensor& tensor) const {
  const Rect whole = WholeOf(tensor.shape);
  const Extent all{.rect = whole, .pitch = whole.columns};
  return {delink::Part(all, only_.value_or(whole))};
}

absl::Status SafetensorsSink::Write(const Field&, const LogicalTensor& tensor,
                                    const Extent& extent, const void* values) {
  const Rect& rect = extent.rect;
  const auto targets = targets_.find(tensor.name);
  DELINK_CHECK(targets != targets_.end()) << tensor.name;
  for (const ExportTarget& target : targets->second) {
    const huggingface::Piece& piece = target.piece;
    const Rect both = Overlap(rect, piece.rect);
    if (both.elements() == 0 || writer_.done(target.tensor)) continue;
    // Values of both are packed: a piece has whole rows, or is in one.
    const Part part{.target = &target,
                    .row = both.row - piece.rect.row,
                    .rows = both.rows,
                    .column = both.column - piece.rect.column,
                    .columns = both.columns,
                    .width = piece.rect.columns,
                    .values = static_cast<const float*>(values) +
                              (both.row - rect.row) * rect.columns +
                              both.column - rect.column};
    if (piece.transposed) {
      DELINK_RETURN_IF_ERROR(PutTransposed(part));
    } else if (piece.rotated && pairs_ > 0) {
      DELINK_RETURN_IF_ERROR(PutPairs(part));
    } else {
      DELINK_RETURN_IF_ERROR(PutRows(part));
    }
    written_ += part.rows * part.columns;
  }
  return absl::OkStatus();
}

absl::Status SafetensorsSink::PutRows(const Part& part) {
  // Whole rows are one range of the file.
  const bool whole = part.columns == part.width;
  const int64_t ranges = whole ? 1 : part.rows;
  const int64_t count = whole ? part.rows * part.width : part.columns;
  for (int64_t r = 0; r < ranges; ++r) {
    DELINK_RETURN_IF_ERROR(
        Put(*part.target, (part.row + r) * part.width + part.column,
            {part.values + r * count, static_cast<size_t>(count)}));
  }
  return absl::OkStatus();
}

// In each head, rows 0, 2, 4, ... go to the first half, the others to the
// second.
absl::Status SafetensorsSink::PutPairs(const Part& part) {
  const int64_t end = part.row + part.rows;
  for (int64_t head = part.row / pairs_ * pairs_; head < end; head += pairs_) {
    for (int64_t second = 0; second < 2; ++second) {
      int64_t row = std::max(part.row, head);
      row += (row - head) % 2 == second ? 0 : 1;
      Part half = part;
      half.row = head + second * (pairs_ / 2) + (row - head) / 2;
      half.rows = 0;
      moved_.clear();
      for (; row < std::min(end, head + pairs_); row += 2, ++half.rows) {
        const float* const from = part.values + (row - part.row) * part.columns;
        moved_.insert(moved_.end(), from, from + part.columns);
      }
      half.values = moved_.data();
      if (half.rows > 0) DELINK_RETURN_IF_ERROR(PutRows(half));
    }
  }
  return absl::OkStatus();
}

// Theirs is [width, rows of the target].
absl::Status SafetensorsSink::PutTransposed(const Part& part) {
  constexpr int64_t kTile = 32;  // rows whose lines a cache keeps
  moved_.resize(static_cast<size_t>(part.rows * part.columns));
  for (int64_t tile = 0; tile < part.rows; tile += kTile) {
    const int64_t end = std::min(tile + kTile, part.rows);
    for (int64_t c = 0; c < part.columns; ++c) {
      for (int64_t r = tile; r < end; ++r) {
        At(moved_, c * part.rows + r) = part.values[r * part.columns + c];
      }
    }
  }
  Part turned = part;
  turned.row = part.column;
  turned.rows = part.columns;
  turned.column = part.row;
  turned.columns = part.rows;
  turned.width = part.target->piece.rect.rows;
  turned.values = moved_.data();
  return PutRows(turned);
}

absl::Status SafetensorsSink::Put(const ExportTarget& target, int64_t first,
                                  std::span<const float> values) {
  first += target.piece.first;
  const auto count = static_cast<int64_t>(values.size());
  const PlannedTensor& to = At(writer_.plan().tensors, target.tensor);
  if (to.type == Type::kF32) {
    return writer_.Write(target.tensor, first, count, values.data());
  }
  narrow_.resize(values.size() *
                 static_cast<size_t>(safetensors::SizeOf(to.type)));
  const int64_t large = safetensors::Narrow(values, to.type, narrow_.data());
  if (large > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        to.name, ": ", large, " of the values from ", first,
        " on are too large for ", std::string(ToString(to.type)),
        "; take --dtype fp32", to.type == Type::kF16 ? " or bf16" : ""));
  }
  return writer_.Write(target.tensor, first, count, narrow_.data());
}

}  // namespace delink
