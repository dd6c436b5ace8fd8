// The gradient of a small parameter (of a norm, of a bias), for kernels that
// write it in f32. If the gradient is kept in bf16, the kernels write to f32
// scratch memory, and Store rounds it once and stores or adds it.
#pragma once

#include "framework/autograd/tape.h"
#include "framework/module/param.h"

namespace delink::ops {

class SmallGradient {
 public:
  // Takes the gradient of `param`, in a closure that is called with `back`.
  SmallGradient(Backward& back, Param& param)
      : SmallGradient(back, param, param.TakeGradAsKept()) {}
  // The same for a part of the gradient, which is taken already.
  SmallGradient(Backward& back, const Param& param,
                const Param::GradTarget& target);

  // The memory that a kernel must write to, and whether it must add.
  void* data() const { return sum_.data(); }
  bool accumulate() const { return !rounded() && target_.accumulate; }
  // Call it after the kernel.
  void Store() const;

 private:
  bool rounded() const { return sum_.dtype() != target_.value.dtype(); }

  Backward* back_;
  DType dtype_;  // of the weight
  Param::GradTarget target_;
  Tensor sum_;
};

// Stores or adds a gradient that is already summed, in the statistics' type.
void AddSmallGradient(Backward& back, const Tensor& sum, Param& param);

}  // namespace delink::ops
