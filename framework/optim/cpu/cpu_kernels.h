// Private to framework/optim/cpu: the kernels in its table.
#pragma once

#include "framework/optim/kernels.h"

namespace delink::cpu {

#define DELINK_DECLARE(entry, Function, Args) \
  template <typename T>                       \
  void Function(Stream&, const Args&);
DELINK_OPTIM_KERNELS(DELINK_DECLARE)
#undef DELINK_DECLARE

// Instantiates a kernel, after its definition, for the types of the tables.
#define DELINK_OPTIM_INSTANTIATE(Function, Args)       \
  template void Function<float>(Stream&, const Args&); \
  template void Function<double>(Stream&, const Args&)

}  // namespace delink::cpu
