// The optimizer's kernels of the CUDA device, for f32: what its table lists.
#pragma once

#include "framework/optim/kernels.h"

namespace delink::cuda {

#define DELINK_DECLARE(entry, Function, Args) \
  void Function(Stream& stream, const Args& args);
DELINK_OPTIM_KERNELS(DELINK_DECLARE)
#undef DELINK_DECLARE

}  // namespace delink::cuda
