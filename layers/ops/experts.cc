#include "layers/ops/experts.h"

#include <utility>
#include <vector>

#include "layers/ops/kernels_of.h"
#include "layers/ops/small_gradient.h"

namespace delink::ops {
namespace {

// The experts of r in `whole`, which has those of the rank.
Tensor OfExperts(const Routing& r, const Tensor& whole) {
  const int64_t each = whole.elements() / whole.dim(0);
  char* const data = static_cast<char*>(whole.data());
  return {data + r.first * each * SizeOf(whole.dtype()),
          whole.dtype(),
          {r.E, each}};
}
void* WeightOf(const Routing& r, const Param& p) {
  return OfExperts(r, p.weight()).data();
}
Param::GradTarget TakeGrad(const Routing& r, Param& p) {
  const Param::GradTarget whole = p.TakeGradAsKept(p.shape()[0] / r.E);
  return {OfExperts(r, whole.value), whole.accumulate};
}

// A grouped product of rows x [cap, in], y [cap, out].
GroupedMatmulArgs ProductOf(const Routing& r, GroupedForm form, void* x,
                            int64_t in, void* y, int64_t out, void* w) {
  return {.E = r.E,
          .cap = r.cap,
          .in = in,
          .out = out,
          .form = form,
          .offsets = Ints(r.offsets),
          .x = x,
          .y = y,
          .w = w};
}

void GatherTo(Stream& stream, const Routing& r, Var of, const void* x,
              int64_t D, void* y) {
  KernelsOf(of.tape(), of.dtype())
      .gather_rows(stream, {.E = r.E,
                            .k = r.k,
                            .cap = r.cap,
                            .D = D,
                            .offsets = Ints(r.offsets),
                            .pairs = Ints(r.pairs),
                            .x = x,
                            .y = y});
}

void CombineTo(Stream& stream, const Routing& r, Var of, const void* x,
               int64_t D, void* y) {
  KernelsOf(of.tape(), of.dtype())
      .combine_rows(
          stream,
          {.N = r.N, .k = r.k, .D = D, .rows = Ints(r.rows), .x = x, .y = y});
}

struct Activation {
  Routing r;
  ExpertActivation form;
  int64_t F;
  Var h;

  void Forward(Stream& stream, const Tensor& y) const {
    KernelsOf(h.tape(), h.dtype())
        .expert_act_forward(stream, {.E = r.E,
                                     .cap = r.cap,
                                     .F = F,
                                     .activation = form,
                                     .offsets = Ints(r.offsets),
                                     .pairs = Ints(r.pairs),
                                     .gates = r.gates.data(),
                                     .x = h.data(),
                                     .y = y.data()});
  }
  void Gradients(Backward& back, Var y) const {
    const Tensor dgates = back.NewGrad(r.gates);
    // Choices that are dropped have no row.
    back.device().FillZero(back.stream(), dgates.data(), dgates.bytes());
    KernelsOf(h.tape(), h.dtype())
        .expert_act_backward(back.stream(), {.E = r.E,
                                             .cap = r.cap,
                                             .F = F,
                                             .activation = form,
                                             .offsets = Ints(r.offsets),
                                             .pairs = Ints(r.pairs),
                                             .gates = r.gates.data(),
                                             .dy = back.grad(y).data(),
                                             .x = h.data(),
                                             .dx = back.NewGrad(h).data(),
                                             .dgates = dgates.data()});
  }
};

// The biases of GroupedLinear.
struct Biases {
  Routing r;
  Param* b;
  bool gated;
  Var y;

  const void* gates() const { return gated ? r.gates.data() : nullptr; }
  void Add(Stream& stream) const {
    KernelsOf(y.tape(), y.dtype())
        .grouped_bias(stream, {.E = r.E,
                               .cap = r.cap,
                               .D = y.dim(-1),
                               .offsets = Ints(r.offsets),
                               .pairs = Ints(r.pairs),
                               .gates = gates(),
                               .b = WeightOf(r, *b),
                               .y = y.data()});
  }
  void GateGradients(Backward& back) const {
    if (!gated) return;
    const Tensor dgates = back.NewGrad(r.gates);
    // Choices that are dropped have no row.
    back.device().FillZero(back.stream(), dgates.data(), dgates.bytes());
    KernelsOf(y.tape(), y.dtype())
        .grouped_bias_gates(back.stream(), {.E = r.E,
                                            .cap = r.cap,
                                            .D = y.dim(-1),
                                            .offsets = Ints(r.offsets),
                                            .pairs = Ints(r.pairs),
                                            .b = WeightOf(r, *b),
                                            .dy = back.grad(y).data(),
                                            .dgates = dgates.data()});
  }
  void Gradient(Backward& back) const {
    const SmallGradient db(back, *b, TakeGrad(r, *b));
    KernelsOf(y.tape(), y.dtype())
        .grouped_bias_grad(back.stream(), {.E = r.E,
                                           .cap = r.cap,
                                           .D = y.dim(-1),
                                           .offsets = Ints(r.offsets),
                                           .pairs = Ints(r.pairs),
                                           .gates = gates(),
                                           .dy = back.grad(y).data(),
                                           .db = db.data(),
                                           .accumulate = db.accumulate()});
    db.Store();
  }
};

}  // namespace

Var Dispatch(Var x, const Routing& r) {
  const int64_t D = x.dim(-1);
  DELINK_CHECK_EQ(RowsOf(x.shape()), r.N);
  Tape& tape = x.tape();
  const Var y = tape.Output({r.cap, D}, x.dtype());
  GatherTo(tape.stream(), r, x, x.data(), D, y.data());
  tape.Record({.name = "dispatch",
               .inputs = {x, r.offsets, r.rows, r.pairs},
               .outputs = {y},
               .saves = {x, r.offsets, r.rows, r.pairs},
               .by_token = true,
               .own_rows = true,
               .input =
                   [=](Backward& back) {
                     if (!x.needs_grad()) return;
                     CombineTo(back.stream(), r, x, back.grad(y).data(), D,
                               back.NewGrad(x).data());
                   },
               .remake =
                   [=](Backward& back, const Tensor& again) {
                     GatherTo(back.stream(), r, x, x.data(), D, again.data());
                   }});
  return y;
}

Var GroupedLinear(Var x, const Routing& r, Param& w, Param* b, bool gated) {
  DELINK_CHECK_EQ(w.shape().rank(), 3);
  const int64_t in = w.shape()[2], out = w.shape()[1];
  DELINK_CHECK_EQ(x.shape(), (Shape{r.cap, in}));
  DELINK_CHECK_EQ(w.shape()[0] % r.E, 0);
  Tape& tape = x.tape();
  const Kernels& kernels = KernelsOf(tape, x.dtype());
  const Var y = tape.Output({x.dim(0), out}, x.dtype());
  kernels.grouped_matmul(
      tape.stream(), ProductOf(r, GroupedForm::kForward, x.data(), in, y.data(),
                               out, WeightOf(r, w)));
  const Biases biases = {r, b, gated && b != nullptr, y};
  if (b != nullptr) biases.Add(tape.stream());
  std::vector<Var> inputs = {x, r.offsets}, saves = {r.offsets};
  if (b != nullptr) {
    inputs.insert(inputs.end(), {r.gates, r.pairs});
    saves.insert(saves.end(), {r.gates, r.pairs});
  }
  const double flops = 2.0 * static_cast<double>(r.choices * in * out);
  tape.Record(
      {.name = "grouped_linear",
       .inputs = std::move(inputs),
       .outputs = {y},
       .weight_saves = {x},
       .saves = std::move(saves),
       .by_token = true,
       .own_rows = true,
       .mixes_columns = true,
       .input =
           [=, &w, &kernels](Backward& back) {
             if (!x.needs_grad()) return;
             kernels.grouped_matmul(
                 back.stream(),
                 ProductOf(r, GroupedForm::kInput, back.NewGrad(x).data(), in,
                           back.grad(y).data(), out, WeightOf(r, w)));
             biases.GateGradients(back);
           },
       .weight =
           [=, &w, &kernels](Backward& back) {
             const Param::GradTarget dw = TakeGrad(r, w);
             GroupedMatmulArgs args =
                 ProductOf(r, GroupedForm::kWeight, x.data(), in,
                           back.grad(y).data(), out, dw.value.data());
             args.accumulate = dw.accumulate;
             args.narrow = dw.value.dtype() == DType::kBF16;
             kernels.grouped_matmul(back.stream(), args);
             if (b != nullptr) biases.Gradient(back);
           },
       .flops = flops,
       .backward_flops = x.needs_grad() ? 2 * flops : flops,
       .weight_flops = flops},
      /*trains=*/true);
  return y;
}

Var ActivateExperts(Var h, const Routing& r, ExpertActivation activation) {
  const int64_t inputs = activation == ExpertActivation::kSwiGlu ? 2 : 1;
  DELINK_CHECK_EQ(h.dim(-1) % inputs, 0) << "h " << h.shape();
  const Activation act = {r, activation, h.dim(-1) / inputs, h};
  Tape& tape = h.tape();
  const Var y = tape.Output({h.dim(0), act.F}, h.dtype());
  act.Forward(tape.stream(), y.value());
  tape.Record({.name = "activate_experts",
               .inputs = {h, r.gates, r.offsets, r.pairs},
               .outputs = {y},
               .saves = {h, r.gates, r.offsets, r.pairs},
               .by_token = true,
               .own_rows = true,
               .input =
                   [=](Backward& back) {
                     if (h.needs_grad()) act.Gradients(back, y);
                   },
               .remake =
                   [=](Backward& back, const Tensor& again) {
                     act.Forward(back.stream(), again);
                   }});
  return y;
}

Var Combine(Var x, const Routing& r, const Shape& shape) {
  const int64_t D = x.dim(-1);
  DELINK_CHECK_EQ(x.dim(0), r.cap);
  DELINK_CHECK(RowsOf(shape) == r.N && shape[-1] == D) << "to " << shape;
  Tape& tape = x.tape();
  const Var y = tape.Output(shape, x.dtype());
  CombineTo(tape.stream(), r, x, x.data(), D, y.data());
  tape.Record({.name = "combine",
               .inputs = {x, r.offsets, r.rows, r.pairs},
               .outputs = {y},
               .saves = {r.offsets, r.pairs},
               .by_token = true,
               .own_rows = true,
               .input = [=](Backward& back) {
                 if (!x.needs_grad()) return;
                 GatherTo(back.stream(), r, x, back.grad(y).data(), D,
                          back.NewGrad(x).data());
               }});
  return y;
}

}  // namespace delink::ops
