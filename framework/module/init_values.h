// The values that parameters begin with: each a function of (seed, logical
// name, index) and of nothing else, so that they can be made anywhere and in
// any pieces. On the host.
#pragma once

#include <cstdint>
#include <string_view>

#include "framework/base/rng.h"
#include "framework/module/param.h"

namespace delink {

RngKey InitKey(uint64_t seed, std::string_view name);

// Values [begin, begin + count) of the parameter that has the key; f32 is f64
// rounded. T: float or double.
template <typename T>
void InitValues(const Init& init, RngKey key, int64_t begin, int64_t count,
                T* out);

}  // namespace delink
