// Initial values of parameters, on the host. Each is a function of (seed,
// logical name, index) alone, so that any rank can make any piece of them.
#pragma once

#include <cstdint>
#include <string_view>

#include "framework/base/rng.h"
#include "framework/module/param.h"

namespace delink {

RngKey InitKey(uint64_t seed, std::string_view name);

// Values [begin, begin + count) of the parameter with this key; f32 values are
// f64 values rounded. T: float or double.
template <typename T>
void InitValues(const Init& init, RngKey key, int64_t begin, int64_t count,
                T* out);

}  // namespace delink
