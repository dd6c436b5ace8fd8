// How a switch changes the optimizer's state of one slab, for values in stores
// and for values that are read from files.
#pragma once

#include <cmath>

#include "framework/sharing/resolve.h"
#include "framework/sharing/state_policy.h"

namespace delink {

// Whether the state begins anew: zeros, and no updates.
inline bool BeginsAnew(const SlabOrigin& origin, StatePolicy policy) {
  return origin.fresh() || (policy == StatePolicy::kReset && origin.changed());
}

// The divisor of a state of this degree in the gradient (StateSpec::degree).
inline double StateDivisor(const SlabOrigin& origin, StatePolicy policy,
                           int degree) {
  if (policy != StatePolicy::kScale) return 1;
  return std::pow(static_cast<double>(origin.before) / origin.after, degree);
}

}  // namespace delink
