// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR
// 2019), over slabs.
//
// State: m and v in planes kState0 and kState1, zero before the first update.
// Under bf16 the master is updated, and the weights are rounded in the same
// pass. Parameters declared with decay = false are not decayed. An update is
// elementwise: whole planes and shards give the same bits. kernels.h has the
// formula.
#pragma once

#include <memory>

#include "framework/optim/slab_optimizer.h"

namespace delink {

struct AdamWConfig {
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double decay = 0.1;
};

std::unique_ptr<SlabOptimizer> NewAdamW(const AdamWConfig& config);

}  // namespace delink
