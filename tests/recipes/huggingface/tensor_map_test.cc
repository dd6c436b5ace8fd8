// Matrices and vectors that are one parameter of ours, stacked, and many
// tensors of theirs: each value is read from its place, whatever the rectangle.
#include "recipes/huggingface/tensor_map.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/module/layout.h"
#include "framework/safetensors/folder.h"
#include "recipes/huggingface/folder_values.h"
#include "tests/recipes/huggingface/tiny_folder.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::tensor_map_test {
namespace {

using huggingface::Family;
using huggingface::FolderValues;
using huggingface::MatchesName;
using huggingface::ModelFolder;

constexpr int64_t kEntries = 3, kGate = 3, kUp = 2, kRows = kGate + kUp;
constexpr int64_t kColumns = 4;

// Ours: [3, 5, 4] and [3, 5], of which each is stacked of 3 and 2.
void Declare(ParamRegistry& registry) {
  const Scope block = Scope(registry).Layer(1, "blocks/0");
  block.Param("weight",
              {.shape = {kEntries, kRows, kColumns}, .stacked = {kGate, kUp}});
  block.Param(
      "bias",
      {.shape = {kEntries, kRows}, .vectors = true, .stacked = {kGate, kUp}});
}

// By entry, row and column of ours; a bias has column 0 alone.
using Values = std::map<std::string, std::vector<float>>;

float& At(Values& values, const std::string& name, int64_t e, int64_t row,
          int64_t column) {
  const int64_t width = name == "bias" ? 1 : kColumns;
  std::vector<float>& all = values[name];
  all.resize(static_cast<size_t>(kEntries * kRows * width));
  return delink::At(all, (e * kRows + row) * width + column);
}

// A folder with a tensor for each matrix.
TinyFolder Each(Values& values) {
  TinyFolder folder;
  for (int64_t e = 0; e < kEntries; ++e) {
    for (const auto& [part, first, rows] :
         {std::tuple{"gate", int64_t{0}, kGate}, {"up", kGate, kUp}}) {
      const std::string name = absl::StrCat("l.0.e.", e, ".", part);
      folder.Add(name, {rows, kColumns});
      folder.Add(name + ".bias", {rows});
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < kColumns; ++c) {
          At(values, "weight", e, first + r, c) =
              delink::At(folder.tensors[name].values, r * kColumns + c);
        }
        At(values, "bias", e, first + r, 0) =
            delink::At(folder.tensors[name + ".bias"].values, r);
      }
    }
  }
  return folder;
}

// A folder with a tensor of all matrices, each [in, out].
TinyFolder Whole(Values& values) {
  TinyFolder folder;
  for (const auto& [part, first, rows] :
       {std::tuple{"gate", int64_t{0}, kGate}, {"up", kGate, kUp}}) {
    const std::string name = absl::StrCat("l.0.", part);
    folder.Add(name, {kEntries, kColumns, rows});
    folder.Add(name + ".bias", {kEntries, rows});
    for (int64_t e = 0; e < kEntries; ++e) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < kColumns; ++c) {
          At(values, "weight", e, first + r, c) = delink::At(
              folder.tensors[name].values, (e * kColumns + c) * rows + r);
        }
        At(values, "bias", e, first + r, 0) =
            delink::At(folder.tensors[name + ".bias"].values, e * rows + r);
      }
    }
  }
  return folder;
}

Family FamilyOf(const std::string& theirs, bool transposed) {
  return {.model_type = "own",
          .tensors = {
              {.ours = "blocks/{i}/weight",
               .theirs = {theirs + "gate", theirs + "up"},
               .transposed = transposed},
              {"blocks/{i}/bias", {theirs + "gate.bias", theirs + "up.bias"}}}};
}

void ExpectRead(const TinyFolder& folder, const Family& family,
                const Values& expected) {
  const TempDir dir;
  folder.Write(dir / "in");
  auto tensors = safetensors::Folder::Open(dir / "in");
  ASSERT_TRUE(tensors.ok()) << std::string(tensors.status().message());
  const ModelFolder opened{.path = dir / "in",
                           .family = &family,
                           .config = nullptr,
                           .tensors = *std::move(tensors)};
  ParamRegistry registry;
  Declare(registry);
  auto values = FolderValues::Open(opened, registry, 1);
  ASSERT_TRUE(values.ok()) << std::string(values.status().message());
  const Layout layout = Layout::Create(registry, 1, {}, {});
  for (const LogicalTensor& tensor : layout.tensors()) {
    const Rect all = WholeOf(tensor.shape);
    const std::vector<float>& whole =
        expected.at(tensor.name.substr(tensor.name.rfind('/') + 1));
    for (Rect rect; rect.row < all.rows; ++rect.row) {
      for (rect.rows = 1; rect.row + rect.rows <= all.rows; ++rect.rows) {
        for (rect.column = 0; rect.column < all.columns; ++rect.column) {
          for (rect.columns = 1; rect.column + rect.columns <= all.columns;
               ++rect.columns) {
            std::vector<float> read(static_cast<size_t>(rect.elements()));
            const Extent extent = Part(values->Has({}, tensor).front(), rect);
            ASSERT_TRUE(values->Read({}, tensor, extent, read.data()).ok());
            for (int64_t i = 0; i < rect.elements(); ++i) {
              const int64_t row = rect.row + i / rect.columns;
              const int64_t column = rect.column + i % rect.columns;
              ASSERT_EQ(delink::At(read, i),
                        delink::At(whole, row * all.columns + column))
                  << tensor.name << " " << row << " " << column;
            }
          }
        }
      }
    }
  }
}

TEST(TensorMap, ReadsEachMatrixFromATensor) {
  Values values;
  const TinyFolder folder = Each(values);
  ExpectRead(folder, FamilyOf("l.{i}.e.{e}.", /*transposed=*/false), values);
}

TEST(TensorMap, ReadsEachMatrixFromATensorOfAll) {
  Values values;
  const TinyFolder folder = Whole(values);
  ExpectRead(folder, FamilyOf("l.{i}.", /*transposed=*/true), values);
}

TEST(TensorMap, MatchesNumbers) {
  EXPECT_TRUE(MatchesName("l.{i}.e.{e}.up", "l.12.e.3.up"));
  EXPECT_TRUE(MatchesName("e.{e}.l.{i}", "e.0.l.9"));
  EXPECT_FALSE(MatchesName("l.{i}.e.{e}.up", "l.12.e.x.up"));
  EXPECT_FALSE(MatchesName("l.{i}.e.{e}.up", "l.12.e.3.down"));
}

}  // namespace
}  // namespace delink::testing::tensor_map_test
