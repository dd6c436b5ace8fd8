// The forms in which a slab's weights, gradients and state are stored, and
// their bytes. Plain values, in the words of recipes.
#pragma once

#include "framework/module/state_storage.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/master.h"

namespace delink::offload {

// The forms of AdamW as run.precision, run.gradients, run.master and
// optimizer.moments set them. f32 weights are their own master (kWhole).
struct ParamForms {
  DType weights = DType::kBF16;    // or kF32
  DType gradients = DType::kBF16;  // or kF32
  MasterForm master = MasterForm::kWhole;
  StateStorage moments = StateStorage::kExact;
  friend bool operator==(const ParamForms&, const ParamForms&) = default;
};

// Bytes per parameter, for AdamW; other optimizers have other moments.
struct ParamBytes {
  double weight = 0;
  // The bytes of `weight` that an update reads: 0 if there is a whole master.
  double weight_read = 0;
  double master = 0;  // beside the weight
  double moments = 0;
  double gradient = 0;

  double state() const { return master + moments; }
  double all() const { return weight + gradient + state(); }
};
ParamBytes BytesOf(const ParamForms& forms);

// "fp32", "split", "none" and "fp32", "bf16", "8bit", as recipes have them.
const char* WordOf(MasterForm master);
const char* WordOf(StateStorage moments);

}  // namespace delink::offload
