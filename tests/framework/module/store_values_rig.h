// Stores of every form with known values, and their ends: what tests of
// StoreValues stand on.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/rng.h"
#include "framework/module/store_values.h"
#include "framework/tensor/bfloat16.h"
#include "tests/framework/module/counting_device.h"
#include "tests/framework/module/plain_values.h"
#include "tests/framework/module/toy_model.h"

namespace delink::testing {

inline constexpr int kToyBlocks = 2;
inline constexpr int64_t kToyWidth =
    37;  // rows that end within blocks of 8 bits

using Values = std::vector<double>;

// What a store is made of.
struct Form {
  std::string name;
  StoreOptions options;
};

inline std::vector<Form> Forms() {
  std::vector<Form> forms = {
      {"f32", {}},
      {"f64", {.dtype = DType::kF64}},
      {"bf16, whole masters", {.dtype = DType::kBF16, .bf16_gradients = true}},
      {"bf16, split masters",
       {.dtype = DType::kBF16,
        .states = MomentsIn(StateStorage::kBF16),
        .master = MasterForm::kSplit}},
      {"bf16 alone",
       {.dtype = DType::kBF16,
        .states = MomentsIn(StateStorage::kBlock8),
        .master = MasterForm::kNone,
        .bf16_gradients = true}},
      {"8 bits", {.states = MomentsIn(StateStorage::kBlock8)}},
      {"factored", {.states = FactoredStates()}}};
  forms.back().options.whole_tensors = WholeTensors::kAll;
  return forms;
}

inline std::vector<Field> FieldsOf(const ParamStore& store) {
  std::vector<Field> fields = {{Field::Kind::kParameters},
                               {Field::Kind::kWeight},
                               {Field::Kind::kMaster},
                               {Field::Kind::kLow},
                               {Field::Kind::kGradient}};
  for (const StateSpec& spec : store.states()) {
    fields.push_back({Field::Kind::kState, spec.name});
  }
  return fields;
}

// Numbers by name and place alone, whatever the layout.
inline Values NumbersAt(const Field& field, const std::string& tensor,
                        const std::vector<int64_t>& indices) {
  const RngKey key = Fold(Fold(Fold(KeyFromSeed(1), std::string_view(tensor)),
                               std::string_view(field.state)),
                          static_cast<uint64_t>(field.kind));
  const bool is_signed =
      field.kind != Field::Kind::kState || field.state == "m";
  Values values;
  for (const int64_t index : indices) {
    const double x = Normal(key, static_cast<uint64_t>(index));
    const double size = x * std::exp(2 * x);
    values.push_back(is_signed ? size : size * size);
  }
  return values;
}

// The bytes of values that travel, from doubles and to them.
inline std::vector<char> Pack(DType type, const Values& values) {
  std::vector<char> bytes(values.size() * static_cast<size_t>(SizeOf(type)));
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == DType::kF64) {
      std::memcpy(bytes.data() + 8 * i, &values[i], 8);
    } else if (type == DType::kF32) {
      const auto value = static_cast<float>(values[i]);
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    } else {
      const BFloat16 value(values[i]);
      std::memcpy(bytes.data() + 2 * i, &value, 2);
    }
  }
  return bytes;
}

inline std::vector<char> ReadBytes(StoreValues& ends, const Field& field,
                                   const LogicalTensor& tensor,
                                   const Extent& extent) {
  std::vector<char> bytes(
      static_cast<size_t>(extent.rect.elements() * SizeOf(ends.type(field))));
  EXPECT_TRUE(ends.Read(field, tensor, extent, bytes.data()).ok());
  return bytes;
}

inline void WriteBytes(StoreValues& ends, const Field& field,
                       const LogicalTensor& tensor, const Extent& extent,
                       const std::vector<char>& bytes) {
  ASSERT_EQ(static_cast<int64_t>(bytes.size()),
            extent.rect.elements() * SizeOf(ends.type(field)));
  // From memory of its own, so that reading beyond it is found.
  EXPECT_TRUE(ends.Write(field, tensor, extent, bytes.data()).ok());
}

// What `rank` has of a descriptor, as ranges where the sink wants whole blocks.
inline Descriptor OnRank(const Descriptor& all, int rank) {
  Descriptor here;
  for (const Extent& extent : all) {
    if (extent.rank == rank) here.push_back(extent);
  }
  return here;
}

inline Descriptor WantedOn(const StoreValues& ends, const Field& field,
                           const LogicalTensor& tensor, int rank) {
  const Descriptor here = OnRank(ends.Wants(field, tensor), rank);
  const bool ranges = ends.grain(field, tensor) > 1;
  return ranges ? AsRanges(here, tensor.shape) : here;
}

// Numbers in the whole field of an extent's values, in order; of ranges too,
// which statistics have none of.
inline std::vector<int64_t> NumbersOf(const Extent& extent, int64_t columns,
                                      StateExtent grid) {
  const bool ranges = grid == StateExtent::kElements;
  if (ranges && extent.rect.columns == 1 && extent.pitch == 1) columns = 1;
  std::vector<int64_t> numbers;
  for (int64_t r = 0; r < extent.rect.rows; ++r) {
    for (int64_t c = 0; c < extent.rect.columns; ++c) {
      numbers.push_back((extent.rect.row + r) * columns + extent.rect.column +
                        c);
    }
  }
  return numbers;
}

inline StateExtent GridOf(const ParamStore& store, const Field& field,
                          const LogicalTensor& tensor) {
  if (field.kind != Field::Kind::kState) return StateExtent::kElements;
  for (const StateSpec& spec : store.states()) {
    if (spec.name != field.state) continue;
    const Slab& slab = At(store.layout().slabs(), tensor.slab);
    return spec
        .Of(KindOf(store.registry().decl(At(slab.params, tensor.param).decl),
                   kToyBlocks))
        .extent;
  }
  return StateExtent::kNone;
}

inline int64_t ColumnsOf(const ParamStore& store, const Field& field,
                         const LogicalTensor& tensor) {
  return WholeOf(StateShape(tensor.shape, GridOf(store, field, tensor)))
      .columns;
}

inline Values ValuesOf(const ParamStore& store, const Field& field,
                       const LogicalTensor& tensor, const Extent& extent) {
  const std::string& name = tensor.link.empty() ? tensor.name : tensor.link;
  return NumbersAt(field, name,
                   NumbersOf(extent, ColumnsOf(store, field, tensor),
                             GridOf(store, field, tensor)));
}

// Everything that a store has, byte for byte: padding and scales too.
inline std::vector<std::vector<char>> AllBytes(const ParamStore& store) {
  std::vector<std::vector<char>> all;
  for (int p = 0; p < kPlanes; ++p) {
    const auto plane = static_cast<Plane>(p);
    for (size_t s = 0; s < store.slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      if (!store.has(slab, plane)) continue;
      const void* const from =
          IsState(plane)
              ? store.state(slab, p - static_cast<int>(Plane::kState0), 0)
                    .values
              : store.at(slab, plane, store.held(slab, plane).begin);
      std::vector<char> bytes(static_cast<size_t>(store.bytes(slab, plane)));
      if (!bytes.empty()) std::memcpy(bytes.data(), from, bytes.size());
      all.push_back(std::move(bytes));
    }
  }
  return all;
}

class StoreValuesRig : public ::testing::Test {
 protected:
  // Exact parameters beside others.
  StoreValuesRig() {
    DeclareToy(registry_, kToyBlocks, kToyWidth);
    MakeExact(registry_, {"norm", "attention"});
  }

  std::unique_ptr<ParamStore> Store(StoreOptions options, int rank = 0,
                                    int ranks = 1, int zero = 1) {
    options.rank = rank;
    options.ranks = ranks;
    return MakeStore(device_, registry_, kToyBlocks,
                     ShareAll(kToyBlocks, {"mlp"}), zero, options);
  }

  // Calls visit(store) for stores of all forms, on one and several ranks.
  template <typename Visit>
  void ForEachStore(Visit visit) {
    for (const Form& form : Forms()) {
      for (const int ranks : {1, 3}) {
        for (int zero = 0; zero < 2; ++zero) {
          for (int rank = 0; rank < ranks; ++rank) {
            SCOPED_TRACE(form.name + ", rank " + std::to_string(rank) + " of " +
                         std::to_string(ranks) + ", zero " +
                         std::to_string(zero));
            visit(form, rank, ranks, zero);
          }
        }
      }
    }
  }

  // Known values in all that a store has, by the store's own means.
  static void Fill(ParamStore& store) {
    const auto stream = store.device().NewStream();
    const DType exact = StatisticsOf(store.options().dtype);
    for (const LogicalTensor& tensor : store.layout().tensors()) {
      if (!tensor.link.empty()) continue;
      const Extent all{.rect = WholeOf(tensor.shape)};
      SetParameters(
          store, *stream, tensor.slab, tensor.offset, tensor.shape.elements(),
          Pack(exact, ValuesOf(store, {Field::Kind::kParameters}, tensor, all))
              .data());
      const DType gradient = store.dtype(tensor.slab, Plane::kGradient);
      const std::vector<char> bytes = Pack(
          gradient, ValuesOf(store, {Field::Kind::kGradient}, tensor, all));
      store.device().CopyFromHost(
          *stream, store.at(tensor.slab, Plane::kGradient, tensor.offset),
          bytes.data(), static_cast<int64_t>(bytes.size()));
      for (size_t k = 0; k < store.states().size(); ++k) {
        const int state = static_cast<int>(k);
        const Range held = store.state(tensor.slab, state, tensor.param).held;
        const Field field{Field::Kind::kState, store.states()[k].name};
        std::vector<int64_t> indices(static_cast<size_t>(held.size()));
        std::iota(indices.begin(), indices.end(), held.begin);
        const Values values = NumbersAt(field, tensor.name, indices);
        WriteState(store, *stream, tensor.slab, state, tensor.param, held,
                   Pack(exact, values).data());
      }
    }
  }

  CountingDevice device_;
  ParamRegistry registry_;
  std::mt19937_64 random_{5};
};

}  // namespace delink::testing
