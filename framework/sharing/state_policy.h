// How the optimizer's state changes when a shared slab is cut into several.
//
// A shared gradient is a sum over the n layers that use it, so the stored
// moments are about m ~ n g and v ~ n^2 g^2, while each new slab will see g.
//   reset  zeros, and bias correction from the start: always safe
//   copy   unchanged: the steps collapse until v forgets; for comparison
//   scale  m / n, v / n^2: right if the layers agree and no gradient is clipped
//   calibrated  as copy; then each slab's m and v are multiplied by factors
//          measured on a few batches without an update (calibrate.h): right
//          in all cases
#pragma once

#include <string_view>

namespace delink {

enum class StatePolicy { kReset, kCopy, kScale, kCalibrated };

constexpr std::string_view ToString(StatePolicy policy) {
  switch (policy) {
    case StatePolicy::kReset:
      return "reset";
    case StatePolicy::kCopy:
      return "copy";
    case StatePolicy::kScale:
      return "scale";
    case StatePolicy::kCalibrated:
      return "calibrated";
  }
  return "";
}

}  // namespace delink
