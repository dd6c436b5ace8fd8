// The gradient of a parameter that is small beside what it is summed over (of a
// norm, of a bias), for kernels that write it in f32: where it is kept in bf16
// they write to scratch memory, from which it is stored or added, rounded once.
#pragma once

#include "framework/autograd/tape.h"
#include "framework/module/param.h"

namespace delink::ops {

class SmallGradient {
 public:
  // Takes the gradient of `param`, for the closure that is given `back`.
  SmallGradient(Backward& back, Param& param);

  // Where a kernel is to write, and whether it is to add.
  void* data() const { return sum_.data(); }
  bool accumulate() const { return !rounded() && target_.accumulate; }
  // To be called when the kernel has been.
  void Store() const;

 private:
  bool rounded() const { return sum_.dtype() != target_.value.dtype(); }

  Backward* back_;
  DType dtype_;  // of the weight
  Param::GradTarget target_;
  Tensor sum_;
};

// Stores, or adds, what has been summed already, of the type of statistics.
void AddSmallGradient(Backward& back, const Tensor& sum, Param& param);

}  // namespace delink::ops
