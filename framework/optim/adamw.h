// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR
// 2019), over slabs.
//
// State: m and v, zero before the first update. AdamWConfig::moments can store
// them in fewer bits:
//   kBF16    those of matrices in bf16, rounded stochastically. Without that, v
//            would stop changing once a step changes it by less than 1 part in
//            512 (with beta2 = 0.999 from the start)
//   kBlock8  those of blocks' matrices in 8 bits a value and an f32 for each
//            256 (Dettmers et al., arXiv 2110.02861)
// Vectors, and under kBlock8 embeddings and heads, stay f32, as is usual.
//
// With bf16 weights the store's master has the parameters, and the update
// rounds the weights in the same pass. Random numbers depend on the seed, the
// parameter's name, the element and the update alone. Parameters declared with
// decay = false are not decayed. An update is elementwise, or by blocks of the
// slab, so that whole planes and shards give the same bits. arguments.h has the
// formula.
#pragma once

#include <memory>

#include "framework/optim/param_rules.h"
#include "framework/optim/slab_optimizer.h"

namespace delink {

struct AdamWConfig {
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double decay = 0.1;
  StateStorage moments = StateStorage::kExact;
};

// The same for all parameters; or with `rules`, which replace beta1, beta2 and
// decay.
std::unique_ptr<SlabOptimizer> NewAdamW(const AdamWConfig& config);
std::unique_ptr<SlabOptimizer> NewAdamW(const AdamWConfig& config,
                                        ParamRules rules);

}  // namespace delink
