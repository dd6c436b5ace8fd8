// Where a rank has the values of one state of one slab: for the ParamStore.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/module/layout.h"
#include "framework/module/state_spec.h"
#include "framework/tensor/dtype.h"

namespace delink {

// The parameters' values one after the other, each parameter's begun at a
// multiple of 64; then the scales of those of 8 bits. A state that is
// elementwise and exact for all parameters lies as the slab does.
struct StateLayout {
  struct Piece {
    StateFormat format;
    Range held;  // the parameter's values that this rank has
    // The value that `at` is of: held.begin, or one in the padding behind.
    int64_t first = 0;
    int64_t at = 0;      // bytes from the plane's start
    int64_t scales = 0;  // bytes from the plane's start
  };
  std::vector<Piece> pieces;  // by Slab::params
  int64_t bytes = 0;
};

// On a rank that holds the elements [begin, begin + room) of the slab and of
// the padding behind it. Factored statistics want all that the slab has of a
// parameter or nothing there: they are of those rows, or columns, a part of
// which is in the slab.
StateLayout LayOutState(const LocalSlab& local, const ParamRegistry& registry,
                        int blocks, const StateSpec& spec, DType exact,
                        int64_t begin, int64_t room);

// Bytes of a value.
int64_t SizeOf(StateStorage storage, DType exact);

// The scales of the blocks that elements [begin, end) of a slab lie in.
int64_t ScalesOf(int64_t begin, int64_t end);

}  // namespace delink
