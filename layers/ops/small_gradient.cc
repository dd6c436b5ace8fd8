#include "layers/ops/small_gradient.h"

#include "framework/base/check.h"
#include "layers/kernels/find_kernels.h"
#include "layers/ops/accumulate.h"

namespace delink::ops {

SmallGradient::SmallGradient(Backward& back, const Param& param,
                             const Param::GradTarget& target)
    : back_(&back),
      dtype_(param.weight().dtype()),
      target_(target),
      sum_(target_.value) {
  const DType wide = StatisticsOf(target_.value.dtype());
  if (wide != target_.value.dtype()) {
    sum_ = back.Scratch(target_.value.shape(), wide);
  }
}

void SmallGradient::Store() const {
  if (!rounded()) return;
  Device& device = back_->device();
  const Kernels* const kernels = FindKernels(device.kind(), dtype_);
  DELINK_CHECK(kernels != nullptr) << ToString(dtype_) << device.name();
  kernels->round_gradient(back_->stream(), {.count = sum_.shape().elements(),
                                            .x = sum_.data(),
                                            .y = target_.value.data(),
                                            .accumulate = target_.accumulate});
}

void AddSmallGradient(Backward& back, const Tensor& sum, Param& param) {
  const Param::GradTarget target = param.TakeGradAsKept();
  const Tensor& to = target.value;
  DELINK_CHECK_EQ(to.elements(), sum.elements());
  if (to.dtype() != sum.dtype()) {
    const Kernels* const kernels =
        FindKernels(back.device().kind(), param.weight().dtype());
    DELINK_CHECK(kernels != nullptr) << back.device().name();
    kernels->round_gradient(back.stream(), {.count = sum.elements(),
                                            .x = sum.data(),
                                            .y = to.data(),
                                            .accumulate = target.accumulate});
  } else if (target.accumulate) {
    Accumulate(back.device(), back.stream(), sum.dtype(), to.data(), sum.data(),
               sum.elements());
  } else {
    back.device().Copy(back.stream(), to.data(), sum.data(), sum.bytes());
  }
}

}  // namespace delink::ops
