// The optimizer's state for each parameter, and how it is stored. The
// ParamStore allocates it; delinking, checkpoints and the memory account follow
// the list.
//
// A state is a tensor of values for each parameter: one for each element, or,
// for factored statistics, one for each row or column of a matrix. The three
// kinds of parameters may differ in this.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/module/scope.h"
#include "framework/module/state_storage.h"
#include "framework/tensor/shape.h"

namespace delink {

enum class ParamKind : uint8_t {
  kHidden,  // a matrix of a block, or several
  kOuter,   // a matrix of prologue or epilogue: embeddings, an output head
  kVector,  // biases, norms' weights: one or several (ParamSpec::vectors)
};
inline ParamKind KindOf(const ParamDecl& decl, int blocks) {
  if (decl.spec.is_vector()) return ParamKind::kVector;
  const bool block = decl.layer >= 1 && decl.layer <= blocks;
  return block ? ParamKind::kHidden : ParamKind::kOuter;
}

enum class StateExtent : uint8_t {
  kElements,  // the parameter's shape
  kRows,      // the shape without the last dimension: a value for each row
  kColumns,   // the shape without the last but one: a value for each column
  kNone,      // nothing
};

struct StateFormat {
  StateExtent extent = StateExtent::kElements;
  StateStorage storage = StateStorage::kExact;  // others: kElements only
  friend bool operator==(const StateFormat&, const StateFormat&) = default;
};

struct StateSpec {
  std::string name;  // "m": the child of /optimizer/TENSOR in checkpoints
  // How it scales with the gradient: 1 linear, 2 quadratic.
  int degree = 1;
  bool is_signed = true;  // whether values may be negative
  StateFormat hidden, outer, vectors;

  const StateFormat& Of(ParamKind kind) const {
    switch (kind) {
      case ParamKind::kHidden:
        return hidden;
      case ParamKind::kOuter:
        return outer;
      case ParamKind::kVector:
        break;
    }
    return vectors;
  }
};

// The two moments of Adam and its kin, in full.
inline std::vector<StateSpec> TwoMoments() {
  return {{.name = "m", .degree = 1},
          {.name = "v", .degree = 2, .is_signed = false}};
}

// Parameters that an update must see whole. If the state is sharded, a slab
// with such parameters has one owner, which has all its state.
enum class WholeTensors : uint8_t { kNone, kHidden, kAll };

// The shape of a state of a parameter of `shape`; kRows and kColumns need two
// dimensions or more.
inline Shape StateShape(const Shape& shape, StateExtent extent) {
  if (extent == StateExtent::kNone) return Shape{0};
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  if (extent == StateExtent::kRows) dims.pop_back();
  if (extent == StateExtent::kColumns) dims.erase(dims.end() - 2);
  return Shape(std::span<const int64_t>(dims));
}

}  // namespace delink
