// A model that is parameters only, and access to the planes of a store: what
// tests of slabs, sharing and optimizers stand on.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/rng.h"
#include "framework/module/param_store.h"

namespace delink::testing {

// embed/token/weight; blocks/I with parts attention, mlp and norm; the final
// norm and a head tied to the embedding. Extents are odd on purpose.
inline void DeclareToy(ParamRegistry& registry, int blocks, int64_t width) {
  const Scope root(registry);
  const Scope embed = root.Layer(0, "embed").Part("embedding");
  (embed / "token")
      .Param("weight",
             {.shape = {3 * width + 1, width}, .init = Init::Normal(0.5)});
  for (int i = 0; i < blocks; ++i) {
    const Scope block = root.Layer(i + 1, "blocks/" + std::to_string(i));
    const Scope norm = (block / "norm1").Part("norm");
    norm.Param("weight",
               {.shape = {width}, .init = Init::Ones(), .decay = false});
    const Scope attn = (block / "attn").Part("attention");
    (attn / "qkv")
        .Param("weight",
               {.shape = {3 * width, width}, .init = Init::Normal(0.25)});
    (attn / "qkv").Param("bias", {.shape = {3 * width}, .decay = false});
    (attn / "out")
        .Param("weight", {.shape = {width, width},
                          .init = Init::Normal(0.125),
                          .residual = true});
    const Scope mlp = (block / "mlp").Part("mlp");
    mlp.Param("up", {.shape = {2 * width + 3, width}, .init = Init::Normal(1)});
  }
  const Scope tail = root.Layer(blocks + 1, "");
  (tail / "norm")
      .Param("weight",
             {.shape = {width}, .init = Init::Ones(), .decay = false});
  (tail / "head" / "weight").Link("embed/token/weight");
}

// Of parameters that a layout does not have yet.
inline void MakeExact(ParamRegistry& registry,
                      const std::vector<std::string>& parts) {
  for (ParamDecl& decl : registry.decls) {
    if (std::ranges::find(parts, decl.part) != parts.end()) {
      decl.spec.exact = true;
    }
  }
}

inline SharingMap ShareAll(int blocks, const std::vector<std::string>& parts) {
  SharingMap map;
  for (const std::string& part : parts) {
    map.leaders[part] = std::vector<int>(static_cast<size_t>(blocks), 0);
  }
  return map;
}

// Of a store over data ranks.
struct StoreOptions {
  DType dtype = DType::kF32;
  int rank = 0;
  int ranks = 1;
  bool gradients = true;
  std::vector<StateSpec> states = TwoMoments();
  WholeTensors whole_tensors = WholeTensors::kNone;
  MasterForm master = MasterForm::kWhole;
  bool bf16_gradients = false;
};

inline std::unique_ptr<ParamStore> MakeStore(
    Device& device, const ParamRegistry& registry, int blocks,
    const SharingMap& sharing, int zero = 0, const StoreOptions& options = {}) {
  auto store = ParamStore::Create(
      device,
      Layout::Create(registry, blocks, sharing,
                     {.mesh = {.data = options.ranks},
                      .zero = zero,
                      .whole_tensors = options.whole_tensors}),
      options.rank,
      {.dtype = options.dtype,
       .gradients = options.gradients,
       .states = options.states,
       .master = options.master,
       .bf16_gradients = options.bf16_gradients});
  DELINK_CHECK(store.ok()) << store.status().ToString();
  return *std::move(store);
}

inline int SlabNamed(const ParamStore& store, const std::string& name) {
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    if (store.slabs()[s].name == name) return static_cast<int>(s);
  }
  DELINK_CHECK(false) << "no slab " << name;
  return -1;
}

// The numbers in the whole parameter of what a local slab has of it, in order.
inline std::vector<int64_t> NumbersOf(const LocalSlab& local, size_t param,
                                      const ParamRegistry& registry) {
  const ParamDecl& decl = registry.decl(local.slab.params[param].decl);
  const int64_t columns = WholeOf(decl.spec.shape).columns;
  std::vector<int64_t> numbers;
  for (const Rect& rect : local.rects[param]) {
    for (int64_t r = 0; r < rect.rows; ++r) {
      for (int64_t c = 0; c < rect.columns; ++c) {
        numbers.push_back((rect.row + r) * columns + rect.column + c);
      }
    }
  }
  return numbers;
}

// A signed and an unsigned state, those of matrices in blocks in `storage`.
inline std::vector<StateSpec> MomentsIn(StateStorage storage) {
  std::vector<StateSpec> specs = TwoMoments();
  for (StateSpec& spec : specs) spec.hidden.storage = storage;
  return specs;
}

inline constexpr StateStorage kStorages[] = {
    StateStorage::kExact, StateStorage::kBF16, StateStorage::kBlock8};

// Factored statistics of matrices, and of vectors each value.
inline std::vector<StateSpec> FactoredStates() {
  const StateFormat none{.extent = StateExtent::kNone};
  const StateFormat rows{.extent = StateExtent::kRows};
  const StateFormat columns{.extent = StateExtent::kColumns};
  return {{.name = "rows",
           .degree = 2,
           .hidden = rows,
           .outer = rows,
           .vectors = none},
          {.name = "columns",
           .degree = 2,
           .hidden = columns,
           .outer = columns,
           .vectors = none},
          {.name = "v", .degree = 2, .hidden = none, .outer = none}};
}

// A number for each element of a store, which tells slabs and planes apart.
inline double ToyValue(int slab, Plane plane, int64_t element) {
  const RngKey key = Fold(Fold(KeyFromSeed(1), static_cast<uint64_t>(slab)),
                          static_cast<uint64_t>(plane));
  return Normal(key, static_cast<uint64_t>(element));
}

// What this rank's plane holds.
template <typename T>
std::vector<T> Read(const ParamStore& store, int slab, Plane plane) {
  DELINK_CHECK_EQ(static_cast<int64_t>(sizeof(T)),
                  SizeOf(store.dtype(slab, plane)));
  const Range range = store.held(slab, plane);
  std::vector<T> values(static_cast<size_t>(range.size()));
  if (values.empty()) return values;
  const auto stream = store.device().NewStream();
  store.device().CopyToHost(*stream, values.data(),
                            store.at(slab, plane, range.begin),
                            range.size() * static_cast<int64_t>(sizeof(T)));
  stream->Synchronize();
  return values;
}

// Writes value(element) to all that this rank's plane holds of parameters;
// padding stays zero.
template <typename T>
void Write(const ParamStore& store, int slab, Plane plane,
           const std::function<T(int64_t)>& value) {
  const auto stream = store.device().NewStream();
  const Range range = store.held(slab, plane);
  for (const SlabParam& param : store.slab(slab).params) {
    const int64_t begin = std::max(range.begin, param.offset);
    const int64_t end = std::min(range.end, param.offset + param.elements);
    std::vector<T> values;
    for (int64_t i = begin; i < end; ++i) values.push_back(value(i));
    if (values.empty()) continue;
    store.device().CopyFromHost(
        *stream, store.at(slab, plane, begin), values.data(),
        static_cast<int64_t>(values.size() * sizeof(T)));
    stream->Synchronize();
  }
}

}  // namespace delink::testing
