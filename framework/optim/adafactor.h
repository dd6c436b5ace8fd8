// Adafactor (Shazeer and Stern, "Adafactor: adaptive learning rates with
// sublinear memory cost", ICML 2018), without a first moment. The second moment
// of a matrix is one number for each row and one for each column, that of a
// vector is kept in full. The root mean square of an update is at most 1. Each
// of E matrices or vectors in one parameter is updated by itself.
// matrix_arguments.h has the formulas; docs/optimizers.md says where they
// differ from torch.optim.Adafactor.
//
// State, quadratic in the gradient: rows, or all of a vector, in plane kState0,
// columns in kState1. If the state is sharded, each slab has one owner.
#pragma once

#include <memory>

#include "framework/optim/param_rules.h"
#include "framework/optim/slab_optimizer.h"

namespace delink {

struct AdafactorConfig {
  double eps = 1e-15;  // the least root of a second moment
  // The learning rate is a share of a parameter's size and falls at least as
  // 1 / sqrt(update).
  bool relative = true;
};

// Reads lr_scale and decay.
std::unique_ptr<SlabOptimizer> NewAdafactor(const AdafactorConfig& config,
                                            ParamRules rules);

}  // namespace delink
