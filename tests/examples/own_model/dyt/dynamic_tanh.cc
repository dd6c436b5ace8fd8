#include "dyt/dynamic_tanh.h"

#include <cstdint>

#include "dyt/kernels.h"
#include "layers/ops/kernels_of.h"
#include "layers/ops/small_gradient.h"

namespace dyt {

using delink::Backward;
using delink::Param;
using delink::Var;
using delink::ops::SmallGradient;

// docs: op
Var DynamicTanh(Var x, Param& slope, Param& scale) {
  const int64_t N = delink::ops::RowsOf(x.shape()), D = x.dim(-1);
  DELINK_CHECK_EQ(slope.shape(), (delink::Shape{D}));
  DELINK_CHECK_EQ(scale.shape(), (delink::Shape{D}));
  delink::Tape& tape = x.tape();
  const Kernels& kernels =
      delink::ops::KernelsOf(tape, x.dtype(), ListOfKernels(), "dynamic_tanh");

  const Var y = tape.Output(x.shape(), x.dtype());
  kernels.forward(tape.stream(), {.N = N,
                                  .D = D,
                                  .x = x.data(),
                                  .slope = slope.weight().data(),
                                  .scale = scale.weight().data(),
                                  .y = y.data()});

  const auto input = [=, &kernels, &slope, &scale](Backward& back) {
    if (!x.needs_grad()) return;
    kernels.backward_input(back.stream(), {.N = N,
                                           .D = D,
                                           .dy = back.grad(y).data(),
                                           .x = x.data(),
                                           .slope = slope.weight().data(),
                                           .scale = scale.weight().data(),
                                           .dx = back.NewGrad(x).data()});
  };
  const auto weight = [=, &kernels, &slope, &scale](Backward& back) {
    const SmallGradient dslope(back, slope), dscale(back, scale);
    kernels.backward_weight(back.stream(),
                            {.N = N,
                             .D = D,
                             .dy = back.grad(y).data(),
                             .x = x.data(),
                             .slope = slope.weight().data(),
                             .scale = scale.weight().data(),
                             .dslope = dslope.data(),
                             .dscale = dscale.data(),
                             .accumulate_slope = dslope.accumulate(),
                             .accumulate_scale = dscale.accumulate()});
    dslope.Store();
    dscale.Store();
  };
  tape.Record({.name = "dynamic_tanh",
               .inputs = {x},
               .outputs = {y},
               .saves = {x},
               .by_token = true,
               .own_rows = true,
               .input = input,
               .weight = weight},
              /*trains=*/true);
  return y;
}
// docs: end

}  // namespace dyt
