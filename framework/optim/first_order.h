// Optimizers whose state is one plane that is linear in the gradient: SGD, as
// torch.optim.SGD, and Lion. docs/optimizers.md has the formulas and says how
// delinking changes the state.
//
// State: m in plane kState0, zero before the first update; none for SGD without
// momentum. Updates are elementwise: whole planes and shards give the same
// bits.
#pragma once

#include <memory>

#include "framework/optim/param_rules.h"
#include "framework/optim/slab_optimizer.h"

namespace delink {

struct SgdConfig {
  bool has_momentum = true;  // false: no plane m, whatever the rules say
  bool nesterov = false;
};

// Reads lr_scale, decay and momentum.
std::unique_ptr<SlabOptimizer> NewSgd(const SgdConfig& config,
                                      ParamRules rules);

// Reads lr_scale, decay, beta1 and beta2.
std::unique_ptr<SlabOptimizer> NewLion(ParamRules rules);

}  // namespace delink
