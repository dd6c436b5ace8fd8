// What a switch makes of the optimizer's state of one slab, wherever the values
// are: in stores or on their way between files.
#pragma once

#include <cmath>

#include "framework/sharing/resolve.h"
#include "framework/sharing/state_policy.h"

namespace delink {

// Whether it begins anew: zeros, and no updates.
inline bool BeginsAnew(const SlabOrigin& origin, StatePolicy policy) {
  return origin.fresh() || (policy == StatePolicy::kReset && origin.changed());
}

// What values of this degree in the gradient are divided by.
inline double StateDivisor(const SlabOrigin& origin, StatePolicy policy,
                           int degree) {
  if (policy != StatePolicy::kScale) return 1;
  return std::pow(static_cast<double>(origin.before) / origin.after, degree);
}

}  // namespace delink
