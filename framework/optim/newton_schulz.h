// A matrix made nearly orthogonal, for Muon: five steps of Newton-Schulz with
// the usual quintic, in the type of the weights that layers read. Private to
// framework/optim.
#pragma once

#include <cstdint>

#include "framework/module/param_store.h"
#include "framework/optim/muon.h"

namespace delink {

// Whether that type is bf16; the state is then f32.
inline bool IsNarrow(const ParamStore& store, int slab) {
  return store.dtype(slab, Plane::kWeight) == DType::kBF16;
}

// The memory in which a matrix [rows, columns] is made orthogonal.
struct OrthogonalMemory {
  char* x = nullptr;     // [rows, columns]
  char* y = nullptr;     // [rows, columns]
  char* u = nullptr;     // [rows, columns], unless it is where gradients are
  char* gram = nullptr;  // [least, least], least = min(rows, columns)
  char* poly = nullptr;  // [least, least]
  double* sums = nullptr;
  double* scale = nullptr;
  int64_t bytes = 0;

  // `gathered`: elements of the exact type that are gathered in `x` before it
  // is used.
  OrthogonalMemory(char* memory, int64_t rows, int64_t columns,
                   const ParamStore& store, int slab, int64_t gathered = 0);
};

// About U V^T of u = U S V^T, in at.x or at.y. u may be at.u.
const void* MakeOrthogonal(Stream& stream, const ParamStore& store, int slab,
                           int64_t rows, int64_t columns,
                           const OrthogonalMemory& at, const void* u,
                           MatrixProductFn multiply);

}  // namespace delink
