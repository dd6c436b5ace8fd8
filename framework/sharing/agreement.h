// How far the gradients of layers that share weights agree: it shows when
// sharing has done its work.
//
// For n layers that share a slab, rho = |sum g_l|^2 / (n sum |g_l|^2): 1 when
// they agree, 1/n when they are unrelated, less when they pull apart.
#pragma once

#include <span>

#include "framework/sharing/switch_policy.h"

namespace delink {

struct SlabAgreement {
  int slab = 0;     // in Layout::program_slabs
  int sharers = 1;  // blocks that use it
  Agreement of;     // from one probe, summed over ranks
};

// Over several slabs; 0 if all gradients are zero.
inline double Rho(std::span<const SlabAgreement> slabs) {
  double together = 0, most = 0;
  for (const SlabAgreement& s : slabs) {
    together += s.of.together;
    most += s.sharers * s.of.apart;
  }
  return most > 0 ? together / most : 0;
}

inline Agreement Sum(std::span<const SlabAgreement> slabs) {
  Agreement sum;
  for (const SlabAgreement& s : slabs) {
    sum.together += s.of.together;
    sum.apart += s.of.apart;
  }
  return sum;
}

}  // namespace delink
