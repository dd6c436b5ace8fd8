#include "layers/ops/swiglu.h"

#include <cstdint>
#include <vector>

#include "layers/ops/kernels_of.h"

namespace delink::ops {
namespace {

Shape Halved(const Shape& x) {
  std::vector<int64_t> dims(x.dims().begin(), x.dims().end());
  dims.back() /= 2;
  return Shape(std::span<const int64_t>(dims));
}

void Forward(Stream& stream, Var x, int64_t N, int64_t F, const Tensor& y) {
  KernelsOf(x.tape(), x.dtype())
      .swiglu_forward(stream, {.N = N, .F = F, .x = x.data(), .y = y.data()});
}

}  // namespace

Var SwiGlu(Var x) {
  DELINK_CHECK_EQ(x.dim(-1) % 2, 0) << "x " << x.shape();
  const int64_t N = RowsOf(x.shape()), F = x.dim(-1) / 2;
  Tape& tape = x.tape();
  const Var y = tape.Output(Halved(x.shape()), x.dtype());
  Forward(tape.stream(), x, N, F, y.value());
  tape.Record({.name = "swiglu",
               .inputs = {x},
               .outputs = {y},
               .saves = {x},
               .by_token = true,
               .own_rows = true,
               .input =
                   [=](Backward& back) {
                     if (!x.needs_grad()) return;
                     KernelsOf(x.tape(), x.dtype())
                         .swiglu_backward(back.stream(),
                                          {.N = N,
                                           .F = F,
                                           .dy = back.grad(y).data(),
                                           .x = x.data(),
                                           .dx = back.NewGrad(x).data()});
                   },
               .remake =
                   [=](Backward& back, const Tensor& again) {
                     Forward(back.stream(), x, N, F, again);
                   }});
  return y;
}

}  // namespace delink::ops
