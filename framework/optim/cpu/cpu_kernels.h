// Private to framework/optim/cpu: the kernels in its table.
#pragma once

#include "framework/optim/kernels.h"

namespace delink::cpu {

#define DELINK_DECLARE(entry, Function, Args) \
  template <typename T>                       \
  void Function(Stream&, const Args&);
DELINK_OPTIM_KERNELS(DELINK_DECLARE)
#undef DELINK_DECLARE

}  // namespace delink::cpu
