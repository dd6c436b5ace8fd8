// The kernels in the optimizer's table of the CUDA device, for f32.
#pragma once

#include "framework/optim/kernels.h"

namespace delink::cuda {

#define DELINK_DECLARE(entry, Function, Args) \
  void Function(Stream& stream, const Args& args);
DELINK_OPTIM_KERNELS(DELINK_DECLARE)
#undef DELINK_DECLARE

}  // namespace delink::cuda
