// Muon (Jordan et al., "Muon: an optimizer for hidden layers in neural
// networks", 2024), as torch.optim.Muon, on the matrices of blocks; AdamW on
// everything else: embeddings, an output head, norms, biases.
//
// The momentum of a matrix is made nearly orthogonal by five steps of
// Newton-Schulz with the usual quintic, in the type of the weights that layers
// read. Each of several matrices, stacked (ParamSpec::stacked) or in a third
// dimension, is updated by itself: an update of q, k and v as one matrix would
// mix their singular values.
//
// State: m in plane kState0, Muon's momentum or AdamW's first moment, linear in
// the gradient; v in kState1 for parameters that AdamW updates. If the state is
// sharded, a slab with matrices of blocks has one owner.
#pragma once

#include <memory>

#include "framework/optim/muon_config.h"
#include "framework/optim/param_rules.h"
#include "framework/optim/slab_optimizer.h"

namespace delink {

// C [m, n] = op(A) [m, k] op(B) [k, n], dense and row-major in device memory;
// a transposed A is stored [k, m], a transposed B [n, k].
struct MatrixProduct {
  DType dtype = DType::kF32;  // of all three
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
};
using MatrixProductFn = void (*)(Device& device, Stream& stream,
                                 const MatrixProduct& product);

// Reads lr_scale and decay; also momentum for matrices of blocks, and beta1 and
// beta2 for other parameters.
std::unique_ptr<SlabOptimizer> NewMuon(const MuonConfig& config,
                                       ParamRules rules,
                                       MatrixProductFn multiply);

}  // namespace delink
