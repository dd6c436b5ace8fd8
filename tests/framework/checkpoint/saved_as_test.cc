// Checkpoints of another model, read as those of this one.
#include "framework/checkpoint/saved_as.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/checkpoint_values.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/module/mover.h"
#include "framework/module/store_values.h"
#include "tests/framework/module/toy_model.h"
#include "tests/testing/temp_dir.h"

namespace delink::saved_as_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kBlocks = 4;
constexpr int64_t kCopies = 3, kRows = 5, kColumns = 6;

// Blocks of a norm and a matrix with its bias; or, every second one, of copies
// of both and a router.
void Declare(ParamRegistry& registry, bool copies) {
  const Scope root(registry);
  for (int i = 0; i < kBlocks; ++i) {
    const Scope block = root.Layer(i + 1, absl::StrCat("blocks/", i));
    (block / "norm").Part("norm").Param("weight", {.shape = {kColumns}});
    if (!copies || i % 2 == 0) {
      const Scope mlp = (block / "mlp").Part("mlp");
      mlp.Param("weight", {.shape = {kRows, kColumns}});
      mlp.Param("bias", {.shape = {kRows}});
      continue;
    }
    (block / "router").Part("router").Param("weight", {.shape = {kCopies, 2}});
    const Scope many = (block / "many").Part("many");
    many.Param("weight",
               {.shape = {kCopies, kRows, kColumns}, .split = Split::kIn});
    many.Param("bias", {.shape = {kCopies, kRows}, .vectors = true});
  }
}

SavedAs Copies() {
  SavedAs saved_as;
  for (int i = 1; i < kBlocks; i += 2) {
    const std::string block = absl::StrCat("blocks/", i, "/");
    for (const char* const name : {"weight", "bias"}) {
      saved_as.sources[absl::StrCat(block, "many/", name)] = {
          .name = absl::StrCat(block, "mlp/", name), .repeated = true};
    }
    saved_as.sources[block + "router/weight"] = {};
  }
  return saved_as;
}

class SavedAsTest : public ::testing::Test {
 protected:
  SavedAsTest() {
    Declare(dense_, false);
    Declare(model_, true);
  }

  // A checkpoint of the dense model, with values by number.
  std::string Saved(const SharingMap& map,
                    const std::vector<StateSpec>& states) {
    const auto store = testing::MakeStore(*device_, dense_, kBlocks, map, 0,
                                          {.states = states});
    StoreValues values(*store);
    for (const LogicalTensor& tensor : store->layout().tensors()) {
      for (const Field& field : FieldsOf(states)) {
        for (const Extent& extent : values.Owners(field, tensor)) {
          std::vector<float> numbers;
          for (int64_t i = 0; i < extent.rect.elements(); ++i) {
            numbers.push_back(
                static_cast<float>(numbers_ + static_cast<double>(i)));
          }
          numbers_ += 1000;
          EXPECT_TRUE(values.Write(field, tensor, extent, numbers.data()).ok());
        }
      }
    }
    for (int64_t& updates : store->updates()) updates = 7;
    SelfCommunicator comm;
    const auto path =
        WriteCheckpoint(comm, dir_.path(), {.step = 1}, *store, {}, 0);
    EXPECT_TRUE(path.ok()) << path.status();
    return path.ok() ? *path : "";
  }

  static std::vector<Field> FieldsOf(const std::vector<StateSpec>& states) {
    std::vector<Field> fields(1);
    for (const StateSpec& spec : states) {
      fields.push_back({Field::Kind::kState, spec.name});
    }
    return fields;
  }

  // All that the source has of a tensor, in rows or in parts of rows.
  static std::vector<float> All(CheckpointValues& source, const Field& field,
                                const LogicalTensor& tensor, bool parts) {
    std::vector<float> all;
    for (const Extent& extent : source.Owners(field, tensor)) {
      all.resize(static_cast<size_t>(extent.rect.elements()));
      const Rect& rect = extent.rect;
      if (!parts) {
        EXPECT_TRUE(source.Read(field, tensor, extent, all.data()).ok());
        continue;
      }
      // Column by column, of rows of several copies.
      for (int64_t c = 0; c < rect.columns; ++c) {
        std::vector<float> column(static_cast<size_t>(rect.rows));
        EXPECT_TRUE(
            source
                .Read(field, tensor,
                      Part(extent,
                           {.rows = rect.rows, .column = c, .columns = 1}),
                      column.data())
                .ok());
        for (int64_t r = 0; r < rect.rows; ++r) {
          all[static_cast<size_t>(r * rect.columns + c)] =
              column[static_cast<size_t>(r)];
        }
      }
    }
    return all;
  }

  double numbers_ = 0;
  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry dense_, model_;
  testing::TempDir dir_;
};

TEST_F(SavedAsTest, CopiesOfMatricesVectorsAndStates) {
  for (const auto& states : {TwoMoments(), testing::FactoredStates()}) {
    const std::string path = Saved({}, states);
    const Layout dense = Layout::Create(dense_, kBlocks, {}, {});
    const Layout model = Layout::Create(model_, kBlocks, {}, {});
    auto saved = CheckpointValues::Open(path, dense, states, DType::kF32);
    auto seen =
        CheckpointValues::Open(path, model, states, DType::kF32, Copies());
    ASSERT_TRUE(saved.ok() && seen.ok());
    int copied = 0;
    for (const LogicalTensor& tensor : model.tensors()) {
      if (Copies().IsFresh(tensor.name)) continue;
      const std::string name = Copies().NameOf(tensor.name);
      const auto old =
          std::ranges::find(dense.tensors(), name, &LogicalTensor::name);
      ASSERT_NE(old, dense.tensors().end());
      EXPECT_EQ(*seen->Updates(tensor), 7);
      for (const Field& field : FieldsOf(states)) {
        if (seen->Has(field, tensor).empty()) continue;
        EXPECT_EQ(seen->Check(field, tensor), absl::OkStatus());
        const std::vector<float> one = All(*saved, field, *old, false);
        std::vector<float> expected = one;
        if (Copies().IsRepeated(tensor.name)) {
          for (int64_t e = 1; e < kCopies; ++e) {
            expected.insert(expected.end(), one.begin(), one.end());
          }
          ++copied;
        }
        for (const bool parts : {false, true}) {
          EXPECT_EQ(All(*seen, field, tensor, parts), expected)
              << tensor.name << " " << field.state;
        }
      }
    }
    EXPECT_GE(copied, 2 * 2 * 2);
  }
}

// Ranks that cut the copies have what one rank has; what is not there stays.
TEST_F(SavedAsTest, WeightsOfRanks) {
  const std::string path = Saved({}, {});
  const Layout model = Layout::Create(model_, kBlocks, {}, {});
  auto seen = CheckpointValues::Open(path, model, {}, DType::kF32, Copies());
  ASSERT_TRUE(seen.ok());
  const absl::Status status = RunRanks(2, [&](Communicator& comm) {
    auto store = ParamStore::Create(
        *device_, Layout::Create(model_, kBlocks, {}, {.mesh = {.tensor = 2}}),
        comm.rank(), {.gradients = false});
    DELINK_CHECK(store.ok());
    const absl::Status loaded = LoadWeights(comm, path, **store, Copies());
    if (!loaded.ok() || comm.rank() > 0) return loaded;
    StoreValues values(**store);
    for (const LogicalTensor& tensor : (*store)->layout().tensors()) {
      const bool fresh = Copies().IsFresh(tensor.name);
      const std::vector<float> all = fresh ? std::vector<float>(kCopies * 2, 0)
                                           : All(*seen, {}, tensor, false);
      const int64_t columns = WholeOf(tensor.shape).columns;
      for (const Extent& extent : values.Has({}, tensor)) {
        if (extent.rank != 0) continue;
        const Rect& rect = extent.rect;
        std::vector<float> own(static_cast<size_t>(rect.elements()));
        EXPECT_TRUE(values.Read({}, tensor, extent, own.data()).ok());
        for (int64_t i = 0; i < rect.elements(); ++i) {
          const int64_t row = rect.row + i / rect.columns;
          const int64_t column = rect.column + i % rect.columns;
          EXPECT_EQ(own[static_cast<size_t>(i)],
                    all[static_cast<size_t>(row * columns + column)])
              << tensor.name;
        }
      }
    }
    return loaded;
  });
  EXPECT_TRUE(status.ok()) << status;
}

// All blocks share a matrix. Those that keep it follow the first of them, and
// those with copies the first with copies.
TEST_F(SavedAsTest, SharingOfPartsThatAreOthersThere) {
  SharingMap map;
  map.leaders["mlp"] = {0, 0, 0, 0};
  const std::string path = Saved(map, {});
  const auto sharing = ReadSharing(path, model_, kBlocks, Copies());
  ASSERT_TRUE(sharing.ok()) << sharing.status();
  EXPECT_THAT(sharing->leaders.at("mlp"), ElementsAre(0, 1, 0, 3));
  EXPECT_THAT(sharing->leaders.at("many"), ElementsAre(0, 1, 2, 1));
  EXPECT_THAT(sharing->leaders.at("router"), ElementsAre(0, 1, 2, 1));
  EXPECT_THAT(sharing->leaders.at("norm"), ElementsAre(0, 1, 2, 3));

  const absl::Status none = ReadSharing(path, model_, kBlocks).status();
  EXPECT_THAT(std::string(none.message()),
              HasSubstr("has no blocks/1/router/weight"));
}

}  // namespace
}  // namespace delink::saved_as_test
