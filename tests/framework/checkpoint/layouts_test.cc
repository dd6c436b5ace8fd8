// Checkpoints of random layouts, cut along every axis: the index shows every
// value where it is, whoever wrote it, and whoever reads gets what is his.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/checkpoint_values.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/hdf5/hdf5.h"
#include "framework/module/mover.h"
#include "tests/framework/module/mover_ends.h"
#include "tests/framework/module/random_layouts.h"
#include "tests/framework/module/toy_model.h"
#include "tests/testing/temp_dir.h"

namespace delink::layouts_test {
namespace {

using testing::AnyLayout;
using testing::Dice;
using testing::OwnerOf;
using testing::TestSink;
using testing::ValueOf;

std::string KeyOf(const Field& field, const std::string& tensor) {
  return absl::StrCat(field.state, ":", tensor);
}

// Values that are functions of field, tensor and number.
class Numbers : public ValueSource {
 public:
  Numbers(const Layout& layout, std::vector<StateSpec> states)
      : layout_(layout), states_(std::move(states)) {}

  StateExtent GridOf(const Field& field, const LogicalTensor& tensor) const {
    const SlabParam& param =
        At(layout_.slabs(), tensor.slab).params[tensor.param];
    const ParamKind kind =
        KindOf(layout_.registry().decl(param.decl), layout_.blocks());
    for (const StateSpec& spec : states_) {
      if (spec.name == field.state) return spec.Of(kind).extent;
    }
    return StateExtent::kElements;
  }
  Shape ShapeOf(const Field& field, const LogicalTensor& tensor) const {
    return StateShape(tensor.shape, GridOf(field, tensor));
  }

  DType type(const Field&) const override { return DType::kF32; }
  Descriptor Has(const Field& field,
                 const LogicalTensor& tensor) const override {
    return DescriptorOf(layout_, tensor, GridOf(field, tensor), false);
  }
  Descriptor Owners(const Field& field,
                    const LogicalTensor& tensor) const override {
    return OwnersOf(layout_, tensor, GridOf(field, tensor));
  }
  absl::Status Read(const Field& field, const LogicalTensor& tensor,
                    const Extent& extent, void* values) override {
    auto* out = static_cast<float*>(values);
    const int64_t columns = WholeOf(ShapeOf(field, tensor)).columns;
    testing::ForEachElement(extent, [&](int64_t row, int64_t column, int64_t) {
      *out++ = static_cast<float>(
          ValueOf(KeyOf(field, tensor.name), row * columns + column));
    });
    return absl::OkStatus();
  }

 private:
  const Layout& layout_;
  std::vector<StateSpec> states_;
};

std::vector<Field> FieldsOf(const std::vector<StateSpec>& states) {
  std::vector<Field> fields(1);
  for (const StateSpec& spec : states) {
    fields.push_back({Field::Kind::kState, spec.name});
  }
  return fields;
}

absl::Status Write(const std::string& folder, const Layout& layout,
                   const std::vector<StateSpec>& states, Communicator& comm) {
  Numbers numbers(layout, states);
  std::vector<int64_t> updates;
  for (size_t s = 0; s < layout.slabs().size(); ++s) {
    updates.push_back(static_cast<int64_t>(100 + s));
  }
  return WriteCheckpoint(comm, folder, {.step = 1},
                         {.layout = &layout,
                          .states = states,
                          .updates = updates,
                          .values = &numbers},
                         {}, 0)
      .status();
}

// Every tensor of the index, also by the names of what is shared.
void CheckIndex(const std::string& path, const Layout& layout,
                const std::vector<StateSpec>& states) {
  const hdf5::File index =
      *hdf5::File::OpenReadOnly(path + "/index.h5", "rank");
  const Numbers numbers(layout, states);
  for (const LogicalTensor& tensor : layout.tensors()) {
    for (const Field& field : FieldsOf(states)) {
      const Shape shape = numbers.ShapeOf(field, tensor);
      const std::string name =
          field.state.empty()
              ? "/model/" + tensor.name
              : absl::StrCat("/optimizer/", tensor.name, "/", field.state);
      ASSERT_EQ(index.Exists(name), shape.elements() > 0) << name;
      if (shape.elements() == 0) continue;
      const auto values = index.ReadAll<float>(name);
      ASSERT_TRUE(values.ok()) << values.status();
      for (size_t i = 0; i < values->size(); ++i) {
        ASSERT_EQ((*values)[i], ValueOf(KeyOf(field, OwnerOf(tensor)),
                                        static_cast<int64_t>(i)))
            << name << " " << i;
      }
    }
    EXPECT_EQ(*index.GetInt("/optimizer/" + tensor.name, "updates"),
              100 + tensor.slab);
  }
}

// What is written of parameters besides their values are zeros.
void CheckPadding(const std::string& path, const Layout& layout) {
  int64_t size = 0, expected = 0;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const hdf5::File file = *hdf5::File::OpenReadOnly(
        absl::StrCat(path, "/rank-0000", rank, ".h5"));
    for (const int local : layout.LocalSlabsOf(rank)) {
      const Slab& slab = At(layout.local_slabs(), local).slab;
      const Range owned = layout.OwnedBy(local, rank);
      expected += owned.size();
      if (owned.size() == 0) continue;
      const auto values = file.ReadAll<float>("/weight/" + slab.name);
      ASSERT_TRUE(values.ok()) << values.status();
      size += static_cast<int64_t>(values->size());
      for (int64_t i = owned.begin; i < owned.end; ++i) {
        const auto has = [i](const SlabParam& param) {
          return i >= param.offset && i < param.offset + param.elements;
        };
        if (std::ranges::any_of(slab.params, has)) continue;
        ASSERT_EQ(At(*values, i - owned.begin), 0) << slab.name;
      }
    }
  }
  EXPECT_EQ(size, expected);
}

// By a model that shares otherwise, each tensor by its own name.
absl::Status ReadBack(const std::string& path, const Layout& written,
                      const Layout& layout,
                      const std::vector<StateSpec>& states, bool sharded,
                      Communicator& comm) {
  std::map<std::string, std::string> owner;
  for (const LogicalTensor& tensor : written.tensors()) {
    owner[tensor.name] = OwnerOf(tensor);
  }
  DELINK_ASSIGN_OR_RETURN(
      CheckpointValues values,
      CheckpointValues::Open(path, layout, states, DType::kF32));
  const Numbers numbers(layout, states);
  for (const Field& field : FieldsOf(states)) {
    for (const LogicalTensor& tensor : layout.tensors()) {
      const StateExtent grid = numbers.GridOf(field, tensor);
      if (!tensor.link.empty() || grid == StateExtent::kNone) continue;
      DELINK_RETURN_IF_ERROR(values.Check(field, tensor));
      TestSink sink(layout, comm.rank(), {.grid = grid, .sharded = sharded});
      const Move move{.field = field, .from = &tensor, .to = {&tensor}};
      DELINK_RETURN_IF_ERROR(MoveValues(values, sink, {&move, 1}, comm, 16));
      sink.Check(tensor, [&](int64_t number) {
        return ValueOf(KeyOf(field, owner[tensor.name]), number);
      });
      EXPECT_EQ(sink.besides(), 0);
    }
  }
  return absl::OkStatus();
}

TEST(CheckpointLayoutsTest, EveryValueIsSavedOnceAndFound) {
  Dice dice(1);
  for (int trial = 0; trial < 25; ++trial) {
    SCOPED_TRACE(trial);
    const bool tensor = dice.Maybe();
    const std::vector<StateSpec> states =
        dice.Maybe() ? TwoMoments() : testing::FactoredStates();
    testing::Model model;
    testing::Declare(model, dice);
    const Layout from = AnyLayout(model, dice, 6, tensor);
    const Layout to = AnyLayout(model, dice, 6, tensor);
    const testing::TempDir dir;
    const absl::Status saved = RunRanks(from.ranks(), [&](Communicator& comm) {
      return Write(dir.path(), from, states, comm);
    });
    ASSERT_TRUE(saved.ok()) << saved;
    const std::string path = dir / "step-00000001";
    SelfCommunicator self;
    ASSERT_EQ(VerifyCheckpoint(self, path), absl::OkStatus());
    CheckIndex(path, from, states);
    CheckPadding(path, from);
    const bool sharded = dice.Maybe();
    const absl::Status read = RunRanks(to.ranks(), [&](Communicator& comm) {
      return ReadBack(path, from, to, states, sharded, comm);
    });
    ASSERT_TRUE(read.ok()) << read;
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace delink::layouts_test
