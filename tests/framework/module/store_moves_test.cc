// Stores of random layouts, forms and sharing are moved into others: byte for
// byte what they are when the values are written there at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/at.h"
#include "framework/module/mover.h"
#include "framework/module/store_values.h"
#include "framework/tensor/block8.h"
#include "tests/framework/module/loopback.h"
#include "tests/framework/module/random_layouts.h"
#include "tests/framework/module/store_values_rig.h"

namespace delink::store_moves_test {
namespace {

using Kind = Field::Kind;
using testing::AllBytes;
using testing::Dice;
using testing::Form;
using testing::Forms;
using testing::kToyBlocks;
using testing::Loopback;
using testing::Pack;
using testing::Transfers;
using testing::WantedOn;
using testing::WriteBytes;

using Stores = std::vector<std::unique_ptr<ParamStore>>;

void ByThree(std::span<double> values, int64_t) {
  for (double& value : values) value /= 3;
}

template <typename T>
void ByThreeAll(std::vector<char>& bytes) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, &bytes[at], sizeof(T));
    value = static_cast<T>(static_cast<double>(value) / 3);
    std::memcpy(&bytes[at], &value, sizeof(T));
  }
}

class StoreMovesTest : public ::testing::Test {
 protected:
  StoreMovesTest() {
    model_.blocks = kToyBlocks;
    const Scope root(model_.registry);
    root.Layer(0, "embed")
        .Param("weight", {.shape = {29, 37}, .split = Split::kOut});
    for (int i = 0; i < kToyBlocks; ++i) {
      testing::DeclareBlock(root.Layer(i + 1, "blocks/" + std::to_string(i)),
                            37, 2, /*exact=*/false);
    }
    const Scope tail = root.Layer(kToyBlocks + 1, "");
    tail.Param("norm", {.shape = {37}});
    (tail / "head").Link("embed/weight");
    testing::MakeExact(model_.registry, {"mlp"});
  }

  Layout AnyLayout(const Form& form, bool tensor) {
    const bool factored = form.name == "factored";
    const Mesh mesh{.tensor = tensor ? 1 << dice_.Below(3) : 1,
                    .data = dice_.Between(1, 4),
                    .pipeline = dice_.Between(1, 2)};
    const int zero = dice_.Below(4);
    return Layout::Create(
        model_.registry, kToyBlocks, testing::AnySharing(model_, dice_),
        {.mesh = mesh,
         .zero = zero,
         .shard = zero == 3 ? testing::AnyShard(dice_, mesh) : 0,
         .whole_tensors = factored ? WholeTensors::kAll
                                   : static_cast<WholeTensors>(dice_.Below(3)),
         .sequence = dice_.Maybe()});
  }

  // Of every rank.
  Stores MakeStores(const Layout& layout, const Form& form) {
    Stores stores;
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      auto store =
          ParamStore::Create(*device_, layout, rank,
                             {.dtype = form.options.dtype,
                              .states = form.options.states,
                              .master = form.options.master,
                              .bf16_gradients = form.options.bf16_gradients});
      DELINK_CHECK(store.ok()) << store.status().ToString();
      stores.push_back(*std::move(store));
    }
    return stores;
  }

  // A form whose values travel alike, and go with the layout.
  Form AnyForm(bool tensor, const Form* other) {
    const std::vector<Form> forms = Forms();
    while (true) {
      const Form form = At(forms, dice_.Below(static_cast<int>(forms.size())));
      if (other == nullptr) return form;
      if ((form.name == "factored") == (other->name == "factored") &&
          StatisticsOf(form.options.dtype) ==
              StatisticsOf(other->options.dtype)) {
        return form;
      }
    }
  }

  static bool IsIn8Bits(const Form& form) {
    return form.options.states.size() == 2 &&
           form.options.states[0].hidden.storage == StateStorage::kBlock8;
  }

  // All of a tensor's values, as they are in the stores.
  static std::vector<char> ReadAll(const Stores& stores, const Field& field,
                                   const LogicalTensor& tensor) {
    std::vector<char> values;
    for (const auto& store : stores) {
      StoreValues ends(*store);
      const auto size = static_cast<size_t>(SizeOf(ends.type(field)));
      const Shape shape =
          StateShape(tensor.shape, testing::GridOf(*store, field, tensor));
      values.resize(static_cast<size_t>(shape.elements()) * size);
      for (const Extent& extent :
           testing::OnRank(ends.Has(field, tensor), store->rank())) {
        const std::vector<char> bytes =
            testing::ReadBytes(ends, field, tensor, extent);
        const char* from = bytes.data();
        for (const int64_t number :
             testing::NumbersOf(extent, WholeOf(shape).columns,
                                testing::GridOf(*store, field, tensor))) {
          std::memcpy(&At(values, number * static_cast<int64_t>(size)), from,
                      size);
          from += size;
        }
      }
    }
    return values;
  }

  // All of a tensor's values, as `kept` would give them back.
  static void Keep(const StoreValues& kept, const ParamStore& store,
                   const Field& field, const LogicalTensor& tensor,
                   std::vector<char>& values) {
    const auto count =
        static_cast<int64_t>(values.size()) / SizeOf(kept.type(field));
    const Layout& layout = store.layout();
    const bool cut = layout.mesh().tensor > 1;
    kept.AsKept(field, tensor,
                {.rect = {0, count, 0, 1},
                 .slab = static_cast<int>(
                     layout.LocalSlabsOfLogical(tensor.slab).begin),
                 .param = cut ? 0 : tensor.param,
                 .pitch = 1},
                values.data());
  }

  // Writes to each rank what it wants of a tensor's values.
  static void WriteAll(const Stores& stores, const Field& field,
                       const LogicalTensor& tensor,
                       const std::vector<char>& values) {
    for (const auto& store : stores) {
      StoreValues ends(*store);
      const auto size = static_cast<size_t>(SizeOf(ends.type(field)));
      const int64_t columns = testing::ColumnsOf(*store, field, tensor);
      for (const Extent& extent :
           WantedOn(ends, field, tensor, store->rank())) {
        std::vector<char> bytes;
        for (const int64_t number : testing::NumbersOf(
                 extent, columns, testing::GridOf(*store, field, tensor))) {
          const char* const from =
              values.data() + static_cast<size_t>(number) * size;
          bytes.insert(bytes.end(), from, from + size);
        }
        WriteBytes(ends, field, tensor, extent, bytes);
      }
    }
  }

  static std::vector<char> AllValues(const ParamStore& store,
                                     const Field& field,
                                     const LogicalTensor& tensor) {
    const StoreValues ends(store);
    const Shape shape =
        StateShape(tensor.shape, testing::GridOf(store, field, tensor));
    return Pack(ends.type(field), testing::ValuesOf(store, field, tensor,
                                                    {.rect = WholeOf(shape)}));
  }

  // On all ranks, in this thread.
  static void Go(const Stores& from, const Stores& to,
                 const std::vector<Move>& moves, int64_t most) {
    const auto ranks = static_cast<int>(std::max(from.size(), to.size()));
    Transfers transfers;
    std::vector<int> again;
    const auto run = [&](int rank) {
      // A rank that is on one side only is beside some of the other's.
      const auto at = static_cast<size_t>(rank);
      StoreValues source(*from[std::min(at, from.size() - 1)]);
      StoreValues sink(*to[std::min(at, to.size() - 1)]);
      Loopback comm(transfers, rank, ranks);
      EXPECT_EQ(MoveValues(source, sink, moves, comm, most), absl::OkStatus());
      return comm.complete();
    };
    for (int rank = 0; rank < ranks; ++rank) {
      if (!run(rank)) again.push_back(rank);
    }
    for (const int rank : again) EXPECT_TRUE(run(rank));
  }

  void Trial();

  Dice dice_{11};
  std::unique_ptr<Device> device_ = NewCpuDevice();
  testing::Model model_;
};

void StoreMovesTest::Trial() {
  const bool tensor = dice_.Maybe();
  const Form before = AnyForm(tensor, nullptr);
  const Form after = dice_.Maybe() ? before : AnyForm(tensor, &before);
  SCOPED_TRACE(before.name + " to " + after.name);
  const Stores from = MakeStores(AnyLayout(before, tensor), before);
  const Layout layout = AnyLayout(after, tensor);
  const Stores to = MakeStores(layout, after);
  const Stores expected = MakeStores(layout, after);
  std::vector<Field> fields = {{Kind::kGradient}};
  for (const StateSpec& spec : before.options.states) {
    fields.push_back({Kind::kState, spec.name});
  }
  if (before.name == after.name && dice_.Maybe()) {
    for (const Kind kind : {Kind::kWeight, Kind::kMaster, Kind::kLow}) {
      fields.push_back({kind});
    }
  } else {
    fields.push_back({Kind::kParameters});
  }
  const StoreValues sink(*to[0]);
  std::vector<Move> moves;
  for (const Field& field : fields) {
    // What is in other blocks is changed as it is.
    const bool change = field.kind == Kind::kState && dice_.Maybe() &&
                        !(tensor && IsIn8Bits(after));
    for (const LogicalTensor& tensor_from : from[0]->layout().tensors()) {
      if (tensor_from.link.empty()) {
        WriteAll(from, field, tensor_from,
                 AllValues(*from[0], field, tensor_from));
      }
      const auto target = std::find_if(
          to[0]->layout().tensors().begin(), to[0]->layout().tensors().end(),
          [&](const LogicalTensor& t) { return t.name == tensor_from.name; });
      if (!target->link.empty()) continue;
      std::vector<char> values = ReadAll(from, field, tensor_from);
      moves.push_back({.field = field, .from = &tensor_from, .to = {&*target}});
      if (change) {
        moves.back().change = &ByThree;
        Keep(sink, *to[0], field, *target, values);
        (sink.type(field) == DType::kF64 ? ByThreeAll<double>
                                         : ByThreeAll<float>)(values);
      }
      WriteAll(expected, field, *target, values);
    }
  }
  Go(from, to, moves, kBlock8 * dice_.Between(1, 4));
  for (size_t rank = 0; rank < to.size(); ++rank) {
    EXPECT_EQ(AllBytes(*to[rank]), AllBytes(*expected[rank])) << rank;
  }
}

TEST_F(StoreMovesTest, BringWhatIsWantedInEveryForm) {
  for (int trial = 0; trial < 150; ++trial) {
    SCOPED_TRACE(trial);
    Trial();
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace delink::store_moves_test
