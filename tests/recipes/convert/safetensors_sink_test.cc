// Values on their way out: taken apart, turned, reordered and rounded, in
// whatever pieces they come.
#include "recipes/convert/safetensors_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "framework/comm/self_communicator.h"
#include "framework/module/mover.h"
#include "framework/safetensors/folder.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::safetensors_sink_test {
namespace {

using huggingface::Piece;
using safetensors::PlannedTensor;
using safetensors::Type;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kRows = 24, kColumns = 5;

// Value i of the tensor.
float ValueAt(int64_t i) {
  return std::ldexp(1 + static_cast<float>(i) / 256, static_cast<int>(i % 7));
}

// A tensor whose values are ValueAt, and its first one is `first`.
class Numbers final : public ValueSource {
 public:
  explicit Numbers(float first = ValueAt(0)) : first_(first) {}
  DType type(const Field&) const override { return DType::kF32; }
  Descriptor Has(const Field&, const LogicalTensor& tensor) const override {
    const Rect whole = WholeOf(tensor.shape);
    return {{.rect = whole, .pitch = whole.columns}};
  }
  Descriptor Owners(const Field& field,
                    const LogicalTensor& tensor) const override {
    return Has(field, tensor);
  }
  absl::Status Read(const Field&, const LogicalTensor& tensor,
                    const Extent& extent, void* values) override {
    const int64_t width = WholeOf(tensor.shape).columns;
    auto* to = static_cast<float*>(values);
    const Rect& rect = extent.rect;
    for (int64_t r = rect.row; r < rect.row + rect.rows; ++r) {
      for (int64_t c = rect.column; c < rect.column + rect.columns; ++c) {
        const int64_t i = r * width + c;
        *to++ = i == 0 ? first_ : ValueAt(i);
      }
    }
    return absl::OkStatus();
  }

 private:
  float first_;
};

struct Case {
  Shape shape = {kRows, kColumns};
  std::vector<Piece> pieces;
  Type type = Type::kF32;
  int64_t pairs = 0;
  int64_t most = kMovePiece;  // values of a piece
};

absl::Status MoveOut(const std::string& dir, const Case& c,
                     Numbers numbers = Numbers()) {
  std::vector<PlannedTensor> tensors;
  ExportTargets targets;
  for (const Piece& piece : c.pieces) {
    targets["ours"].push_back({tensors.size(), piece});
    tensors.push_back({piece.name, c.type, piece.shape});
  }
  absl::StatusOr<safetensors::Plan> plan = safetensors::PlanFiles(tensors);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<safetensors::Writer> writer =
      safetensors::Writer::Create(dir, *std::move(plan));
  if (!writer.ok()) return writer.status();
  std::atomic<int64_t> written = 0;
  SafetensorsSink sink(*writer, targets, c.pairs, written);
  const LogicalTensor tensor{.name = "ours", .shape = c.shape};
  Move move;
  move.from = &tensor;
  move.to = {&tensor};
  SelfCommunicator comm;
  const absl::Status moved =
      MoveValues(numbers, sink, {&move, 1}, comm, c.most);
  if (!moved.ok()) return moved;
  EXPECT_EQ(written, c.shape.elements());
  return writer->Finish().status();
}

// The values of a tensor that was moved out.
std::vector<float> Out(const std::string& dir, const std::string& name) {
  const absl::StatusOr<safetensors::Folder> folder =
      safetensors::Folder::Open(dir);
  EXPECT_TRUE(folder.ok()) << std::string(folder.status().message());
  const safetensors::Folder::Tensor* const tensor = folder->Find(name);
  std::vector<float> values(static_cast<size_t>(tensor->entry->count()));
  EXPECT_TRUE(
      tensor->file
          ->Read(*tensor->entry, 0, tensor->entry->count(), values.data())
          .ok());
  return values;
}

// Of piece sizes that cut rows, heads and columns anywhere.
constexpr int64_t kMosts[] = {1, 3, 5, 7, 15, 35, 64, kMovePiece};

TEST(SafetensorsSink, RowsAreTakenApart) {
  for (const int64_t most : kMosts) {
    SCOPED_TRACE(most);
    const TempDir dir;
    Case c{.most = most};
    c.pieces = {
        {.name = "q", .shape = {11, kColumns}, .rect = {0, 11, 0, kColumns}},
        {.name = "k", .shape = {1, kColumns}, .rect = {11, 1, 0, kColumns}},
        {.name = "v", .shape = {12, kColumns}, .rect = {12, 12, 0, kColumns}}};
    ASSERT_TRUE(MoveOut(dir.path(), c).ok());
    for (const Piece& piece : c.pieces) {
      const std::vector<float> out = Out(dir.path(), piece.name);
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(out[i],
                  ValueAt(piece.rect.row * kColumns + static_cast<int64_t>(i)));
      }
    }
  }
}

TEST(SafetensorsSink, MatricesAreTransposed) {
  for (const int64_t most : kMosts) {
    SCOPED_TRACE(most);
    const TempDir dir;
    Case c{.most = most};
    c.pieces = {{.name = "a",
                 .shape = {kColumns, 10},
                 .rect = {0, 10, 0, kColumns},
                 .transposed = true},
                {.name = "b",
                 .shape = {kColumns, 14},
                 .rect = {10, 14, 0, kColumns},
                 .transposed = true}};
    ASSERT_TRUE(MoveOut(dir.path(), c).ok());
    for (const Piece& piece : c.pieces) {
      const std::vector<float> out = Out(dir.path(), piece.name);
      for (int64_t column = 0; column < kColumns; ++column) {
        for (int64_t row = 0; row < piece.rect.rows; ++row) {
          ASSERT_EQ(out[static_cast<size_t>(column * piece.rect.rows + row)],
                    ValueAt((piece.rect.row + row) * kColumns + column));
        }
      }
    }
  }
}

// Heads of 6: of matrices and of biases.
TEST(SafetensorsSink, PairsAreTakenApartIntoHalves) {
  constexpr int64_t kHead = 6;
  for (const Shape& shape : {Shape{kRows, kColumns}, Shape{kRows}}) {
    const int64_t width = shape.rank() == 1 ? 1 : kColumns;
    for (const int64_t most : kMosts) {
      SCOPED_TRACE(absl::StrCat(shape.ToString(), ", ", most));
      const TempDir dir;
      Case c{.shape = shape, .pairs = kHead, .most = most};
      const auto part = [&](const char* name, int64_t row, int64_t rows) {
        Piece piece{.name = name,
                    .shape = {rows},
                    .rect = {row, rows, 0, WholeOf(shape).columns}};
        if (shape.rank() > 1) piece.shape.push_back(kColumns);
        return piece;
      };
      c.pieces = {part("q", 0, 12), part("k", 12, 6), part("v", 18, 6)};
      c.pieces[0].rotated = c.pieces[1].rotated = true;
      ASSERT_TRUE(MoveOut(dir.path(), c).ok());
      for (const Piece& piece : c.pieces) {
        const std::vector<float> out = Out(dir.path(), piece.name);
        for (int64_t row = 0; row < piece.rect.rows; ++row) {
          // Element i < 3 of a head is our 2 i, element 3 + i our 2 i + 1.
          const int64_t i = row % kHead;
          const int64_t from =
              !piece.rotated ? row
                             : row - i + (i < 3 ? 2 * i : 2 * (i - 3) + 1);
          for (int64_t column = 0; column < width; ++column) {
            ASSERT_EQ(out[static_cast<size_t>(row * width + column)],
                      ValueAt((piece.rect.row + from) * width + column))
                << piece.name << " " << row;
          }
        }
      }
    }
  }
}

TEST(SafetensorsSink, ValuesAreRoundedOnce) {
  const Piece all{
      .name = "w", .shape = {kRows, kColumns}, .rect = {0, kRows, 0, kColumns}};
  for (const Type type : {Type::kBF16, Type::kF16}) {
    const TempDir dir;
    ASSERT_TRUE(
        MoveOut(dir.path(), {.pieces = {all}, .type = type, .most = 7}).ok());
    const std::vector<float> out = Out(dir.path(), "w");
    for (size_t i = 0; i < out.size(); ++i) {
      const float exact = ValueAt(static_cast<int64_t>(i));
      // Of bf16 8 bits count, of fp16 11, which have all of these.
      const float unit =
          std::ldexp(1.0F, std::ilogb(exact) - (type == Type::kBF16 ? 7 : 10));
      ASSERT_EQ(out[i], std::nearbyint(exact / unit) * unit) << i;
    }
  }
}

TEST(SafetensorsSink, WhatIsTooLargeIsRefused) {
  const TempDir dir;
  const Piece all{.name = "big",
                  .shape = {kRows, kColumns},
                  .rect = {0, kRows, 0, kColumns}};
  const absl::Status status = MoveOut(
      dir.path(), {.pieces = {all}, .type = Type::kF16}, Numbers(65520));
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("big"), HasSubstr("1 of the values"),
                    HasSubstr("--dtype fp32 or bf16")));
  const TempDir other;
  EXPECT_TRUE(MoveOut(other.path(), {.pieces = {all}, .type = Type::kF16},
                      Numbers(65519))
                  .ok());
}

}  // namespace
}  // namespace delink::testing::safetensors_sink_test
