// A store as both ends of a move: what is written is kept as the store keeps
// it, and read again as it was. Parts of what is there: store_moves_test.
#include "framework/module/store_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tests/framework/module/store_values_rig.h"

namespace delink::store_values_test {
namespace {

using Kind = Field::Kind;
using testing::AllBytes;
using testing::FieldsOf;
using testing::Form;
using testing::Forms;
using testing::GridOf;
using testing::kToyBlocks;
using testing::kToyWidth;
using testing::MakeStore;
using testing::OnRank;
using testing::Pack;
using testing::ReadBytes;
using testing::ValuesOf;
using testing::WantedOn;
using testing::WriteBytes;

using StoreValuesTest = testing::StoreValuesRig;

TEST_F(StoreValuesTest, HasWhatIsHeldAndEachValueHasOneOwner) {
  ForEachStore([&](const Form& form, int rank, int ranks, int zero) {
    const auto store = Store(form.options, rank, ranks, zero);
    const StoreValues ends(*store);
    for (const Field& field : FieldsOf(*store)) {
      for (const LogicalTensor& tensor : store->layout().tensors()) {
        const Descriptor has = ends.Has(field, tensor);
        const bool absent =
            (field.kind == Kind::kMaster &&
             !store->has(tensor.slab, Plane::kMaster)) ||
            (field.kind == Kind::kLow &&
             !store->has(tensor.slab, Plane::kLow)) ||
            (field.kind == Kind::kWeight && store->IsExact(tensor));
        const int64_t all =
            absent ? 0
                   : StateShape(tensor.shape, GridOf(*store, field, tensor))
                         .elements();
        int64_t owned = 0, held = 0, wanted = 0;
        for (const Extent& e : ends.Owners(field, tensor)) {
          owned += e.rect.elements();
        }
        for (const Extent& e : has) held += e.rect.elements();
        for (const Extent& e : ends.Wants(field, tensor)) {
          wanted += e.rect.elements();
        }
        const bool master = field.kind == Kind::kParameters &&
                            (store->has(tensor.slab, Plane::kMaster) ||
                             store->has(tensor.slab, Plane::kLow));
        const bool sharded =
            zero == 1 &&
            (field.kind == Kind::kState || master ||
             field.kind == Kind::kMaster || field.kind == Kind::kLow);
        EXPECT_EQ(owned, all) << tensor.name;
        EXPECT_EQ(held, sharded ? all : all * ranks) << tensor.name;
        EXPECT_EQ(wanted, sharded && !master ? all : all * ranks)
            << tensor.name;
      }
    }
  });
}

// Into empty stores, in pieces in any order: byte for byte what a store is that
// was filled by other means, padding and scales too.
TEST_F(StoreValuesTest, KeepsWhatIsWrittenAsTheStoreKeepsIt) {
  ForEachStore([&](const Form& form, int rank, int ranks, int zero) {
    const auto filled = Store(form.options, rank, ranks, zero);
    Fill(*filled);
    const auto store = Store(form.options, rank, ranks, zero);
    StoreValues ends(*store);
    for (const Field& field : FieldsOf(*store)) {
      const bool is_part = field.kind == Kind::kWeight ||
                           field.kind == Kind::kMaster ||
                           field.kind == Kind::kLow;
      if (is_part) continue;  // of kParameters
      for (const LogicalTensor& tensor : store->layout().tensors()) {
        if (!tensor.link.empty()) continue;
        const Grain grain{.size = ends.grain(field, tensor),
                          .first = tensor.offset,
                          .elements = tensor.shape.elements()};
        std::vector<CopyStep> pieces;
        for (const Extent& extent : WantedOn(ends, field, tensor, rank)) {
          const auto add = [&](CopyStep piece) {
            pieces.push_back(std::move(piece));
            return absl::OkStatus();
          };
          EXPECT_TRUE(
              CutIntoPieces({extent, {{extent, 0}}}, 256, grain, add).ok());
        }
        std::shuffle(pieces.begin(), pieces.end(), random_);
        for (const CopyStep& piece : pieces) {
          WriteBytes(ends, field, tensor, piece.from,
                     Pack(ends.type(field),
                          ValuesOf(*store, field, tensor, piece.from)));
        }
      }
    }
    EXPECT_EQ(AllBytes(*store), AllBytes(*filled));
  });
}

// Also what no number is: the bits of each plane, which parameters composed and
// written again would not keep.
TEST_F(StoreValuesTest, PlanesTravelAsTheirBits) {
  for (const Form& form : Forms()) {
    SCOPED_TRACE(form.name);
    const auto from = Store(form.options, 1, 3);
    const auto to = Store(form.options, 1, 3);
    StoreValues source(*from), sink(*to);
    for (const Kind kind :
         {Kind::kWeight, Kind::kMaster, Kind::kLow, Kind::kParameters}) {
      for (const LogicalTensor& tensor : from->layout().tensors()) {
        const bool whole = kind == Kind::kParameters;
        if (whole != from->IsExact(tensor)) continue;
        for (const Extent& extent : OnRank(source.Has({kind}, tensor), 1)) {
          std::vector<char> bits(static_cast<size_t>(
              extent.rect.elements() * SizeOf(source.type({kind}))));
          for (char& byte : bits) byte = static_cast<char>(random_());
          WriteBytes(source, {kind}, tensor, extent, bits);
          EXPECT_EQ(ReadBytes(source, {kind}, tensor, extent), bits);
          WriteBytes(sink, {kind}, tensor, extent, bits);
        }
      }
    }
    EXPECT_EQ(AllBytes(*to), AllBytes(*from));
  }
}

TEST_F(StoreValuesTest, ARunIsOneCopy) {
  const auto store = Store({.states = testing::MomentsIn(StateStorage::kBF16)});
  StoreValues ends(*store);
  const LogicalTensor& tensor = store->layout().tensors().at(0);
  ASSERT_EQ(tensor.name, "embed/token/weight");
  const Field field{Kind::kParameters};
  const Extent all = ends.Has(field, tensor).at(0);
  device_.to_host = device_.from_host = device_.copies = 0;
  const std::vector<char> bytes = ReadBytes(ends, field, tensor, all);
  WriteBytes(ends, field, tensor, all, bytes);
  EXPECT_EQ(device_.to_host, 1);
  EXPECT_EQ(device_.from_host, 1);
  EXPECT_TRUE(ends.Copy(ends, field, tensor, all, tensor, all));
  EXPECT_EQ(device_.copies, 1);
  ReadBytes(ends, field, tensor, Part(all, {1, 5, 2, 3}));
  EXPECT_EQ(device_.to_host, 6);
}

// What would be read back: of each form, on any rank's part.
TEST_F(StoreValuesTest, SaysWhatItWouldKeep) {
  ForEachStore([&](const Form& form, int rank, int ranks, int zero) {
    const auto store = Store(form.options, rank, ranks, zero);
    StoreValues ends(*store);
    const int other = (rank + 1) % ranks;
    const auto other_store = Store(form.options, other, ranks, zero);
    StoreValues other_ends(*other_store);
    for (const Field& field : FieldsOf(*store)) {
      for (const LogicalTensor& tensor : store->layout().tensors()) {
        for (const Extent& extent : WantedOn(ends, field, tensor, rank)) {
          std::vector<char> values =
              Pack(ends.type(field), ValuesOf(*store, field, tensor, extent));
          WriteBytes(ends, field, tensor, extent, values);
          ends.AsKept(field, tensor, extent, values.data());
          if (OnRank(ends.Has(field, tensor), rank) !=
              OnRank(ends.Wants(field, tensor), rank)) {
            continue;  // a weight that is here, of a master that is not
          }
          EXPECT_EQ(ReadBytes(ends, field, tensor, extent), values)
              << tensor.name << " " << field.state;
        }
        // Of what is on another rank it says what a store there does.
        for (const Extent& extent : WantedOn(ends, field, tensor, other)) {
          std::vector<char> values =
              Pack(ends.type(field), ValuesOf(*store, field, tensor, extent));
          std::vector<char> there = values;
          ends.AsKept(field, tensor, extent, values.data());
          other_ends.AsKept(field, tensor, extent, there.data());
          EXPECT_EQ(values, there) << tensor.name << " " << field.state;
        }
      }
    }
  });
}

TEST_F(StoreValuesTest, HasNoStateOfAnotherName) {
  const auto store = Store({});
  StoreValues ends(*store);
  const LogicalTensor& tensor = store->layout().tensors().at(0);
  const Field field{Kind::kState, "columns"};
  EXPECT_TRUE(ends.Has(field, tensor).empty());
  EXPECT_TRUE(ends.Owners(field, tensor).empty());
  EXPECT_TRUE(ends.Wants(field, tensor).empty());
  EXPECT_EQ(ends.grain(field, tensor), 1);
  EXPECT_EQ(ends.type(field), DType::kF32);
}

TEST_F(StoreValuesTest, NothingIsOnADeviceThatComputesNothing) {
  const auto meta = NewMetaDevice();
  const auto store = MakeStore(*meta, registry_, kToyBlocks, {}, 0);
  StoreValues ends(*store);
  const LogicalTensor& tensor = store->layout().tensors().at(0);
  for (const Field& field : FieldsOf(*store)) {
    EXPECT_TRUE(ends.Has(field, tensor).empty());
    EXPECT_TRUE(ends.Owners(field, tensor).empty());
    EXPECT_TRUE(ends.Wants(field, tensor).empty());
    const Extent extent{.rect = {0, 1, 0, 1}, .pitch = 1};
    double value = 7;
    EXPECT_TRUE(ends.Read(field, tensor, extent, &value).ok());
    EXPECT_TRUE(ends.Write(field, tensor, extent, &value).ok());
    EXPECT_EQ(value, 7);
  }
}

using StoreValuesDeathTest = StoreValuesTest;

TEST_F(StoreValuesDeathTest, RefusesWhatIsNotHere) {
  const auto store = Store({.dtype = DType::kBF16}, 1, 3);
  StoreValues ends(*store);
  const ParamStore& constant = *store;
  StoreValues source(constant);
  const LogicalTensor& tensor = store->layout().tensors().at(0);
  const Field master{Kind::kMaster}, weight{Kind::kWeight};
  Extent mine = OnRank(ends.Has(weight, tensor), 1).at(0);
  std::vector<float> values(static_cast<size_t>(mine.rect.elements()));
  EXPECT_DEATH(
      static_cast<void>(source.Write(weight, tensor, mine, values.data())),
      "a source only");
  EXPECT_DEATH(
      static_cast<void>(ends.Read(master, tensor, mine, values.data())),
      "embed/token/weight is not on rank 1");
  mine.rank = 2;
  EXPECT_DEATH(
      static_cast<void>(ends.Read(weight, tensor, mine, values.data())),
      "extent.rank");
}

// A block is written when all of it has come, in whatever parts: the same bytes
// as written at once. Before that nothing is.
TEST_F(StoreValuesTest, BlocksOf8BitsMayComeInParts) {
  const Form form{"8 bits",
                  {.states = testing::MomentsIn(StateStorage::kBlock8)}};
  for (int rank = 0; rank < 3; ++rank) {
    const auto whole = Store(form.options, rank, 3);
    const auto parts = Store(form.options, rank, 3);
    StoreValues at_once(*whole), ends(*parts);
    const auto before = AllBytes(*parts);
    for (const char* state : {"m", "v"}) {
      const Field field{Kind::kState, state};
      for (const LogicalTensor& tensor : whole->layout().tensors()) {
        if (!tensor.link.empty()) continue;
        for (const Extent& extent : OnRank(ends.Wants(field, tensor), rank)) {
          const auto write = [&](StoreValues& sink, const Extent& part) {
            WriteBytes(
                sink, field, tensor, part,
                Pack(DType::kF32, ValuesOf(*whole, field, tensor, part)));
          };
          write(at_once, extent);
          // Columns, so that no block is whole before the last ones come.
          std::vector<int64_t> columns(
              static_cast<size_t>(extent.rect.columns));
          std::iota(columns.begin(), columns.end(), extent.rect.column);
          std::shuffle(columns.begin(), columns.end(), random_);
          for (const int64_t column : columns) {
            write(ends,
                  Part(extent, {extent.rect.row, extent.rect.rows, column, 1}));
          }
        }
      }
    }
    EXPECT_EQ(AllBytes(*parts), AllBytes(*whole));
    EXPECT_NE(AllBytes(*parts), before);
  }
}

TEST_F(StoreValuesTest, BlocksOfWhatIsCutOverTheTensorAxisAreItsOwn) {
  ParamRegistry registry;
  const Scope block = Scope(registry).Layer(1, "blocks/0");
  block.Param("up", {.shape = {100, 37}, .split = Split::kOut});
  block.Param("norm", {.shape = {37}});
  const Layout layout =
      Layout::Create(registry, 1, {}, {.mesh = {.tensor = 2}});
  const auto store =
      ParamStore::Create(device_, layout, 0,
                         {.states = testing::MomentsIn(StateStorage::kBlock8)});
  ASSERT_TRUE(store.ok());
  StoreValues ends(**store);
  const Field field{Kind::kState, "m"};
  const auto& tensors = (*store)->layout().tensors();
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(ends.grain(field, tensors[0]), 1);
  EXPECT_EQ(ends.grain(field, tensors[1]), 1);
  // Of rows that nobody can say the block of.
  std::vector<float> values = {1, 0.3F, 0.01F}, kept = values;
  ends.AsKept(field, tensors[0],
              Part(ends.Wants(field, tensors[0]).at(0), {1, 1, 0, 3}),
              kept.data());
  EXPECT_EQ(kept, values);
}

TEST_F(StoreValuesDeathTest, RoundsNoPartsOfBlocksOf8Bits) {
  const auto store =
      Store({.states = testing::MomentsIn(StateStorage::kBlock8)});
  StoreValues ends(*store);
  const LogicalTensor& tensor = *std::find_if(
      store->layout().tensors().begin(), store->layout().tensors().end(),
      [](const LogicalTensor& t) { return t.name == "blocks/0/mlp/up"; });
  const Field field{Kind::kState, "m"};
  const Extent row = Part(ends.Has(field, tensor).at(0), {0, 1, 0, kToyWidth});
  std::vector<float> values(kToyWidth);
  EXPECT_DEATH(ends.AsKept(field, tensor, row, values.data()),
               "a block of 256 values is cut");
}

}  // namespace
}  // namespace delink::store_values_test
