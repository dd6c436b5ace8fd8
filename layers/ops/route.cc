#include "layers/ops/route.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "layers/ops/assign_rows.h"
#include "layers/ops/kernels_of.h"

namespace delink::ops {
namespace {

// x [..., D] in the statistics' type: x itself, or a copy.
template <typename Memory>  // Tape or Backward
Tensor Widened(Memory& memory, Var x) {
  const DType wide = StatisticsOf(x.dtype());
  if (wide == x.dtype()) return x.value();
  const Tensor copy = memory.Scratch(x.shape(), wide);
  KernelsOf(x.tape(), x.dtype())
      .widen(memory.stream(),
             {.count = copy.elements(), .x = x.data(), .y = copy.data()});
  return copy;
}

struct RouterSizes {
  int64_t N, D, E;
};

void RouterInputGrad(Backward& back, RouterSizes s, Var x, Var y, Param& w) {
  if (!x.needs_grad()) return;
  const Tensor dx = back.NewGrad(x);
  const bool rounds = dx.dtype() != y.dtype();
  const Tensor wide = rounds ? back.Scratch(x.shape(), y.dtype()) : dx;
  KernelsOf(x.tape(), y.dtype())
      .matmul(back.stream(), {.m = s.N,
                              .n = s.D,
                              .k = s.E,
                              .a = back.grad(y).data(),
                              .lda = s.E,
                              .b = w.weight().data(),
                              .ldb = s.D,
                              .c = wide.data(),
                              .ldc = s.D});
  if (!rounds) return;
  KernelsOf(x.tape(), x.dtype())
      .round_gradient(
          back.stream(),
          {.count = dx.elements(), .x = wide.data(), .y = dx.data()});
}

void RouterWeightGrad(Backward& back, RouterSizes s, Var x, Var y, Param& w) {
  const Tensor wide = Widened(back, x);
  const Param::GradTarget dw = w.TakeGrad();
  KernelsOf(x.tape(), y.dtype())
      .matmul(back.stream(), {.m = s.E,
                              .n = s.D,
                              .k = s.N,
                              .transpose_a = true,
                              .a = back.grad(y).data(),
                              .lda = s.E,
                              .b = wide.data(),
                              .ldb = s.D,
                              .c = dw.value.data(),
                              .ldc = s.D,
                              .accumulate = dw.accumulate,
                              .c_is_gradient = true});
}

// Computes the gradient of shares for the auxiliary loss: that of all tokens of
// a sequence or of the micro-batch, which may be on several ranks, or by loads.
void Balance(Backward& back, const Routed& r, RouteBackwardArgs& args) {
  const Tape& tape = r.logits.tape();
  const Kernels& kernels = KernelsOf(tape, r.logits.dtype());
  const int64_t G = r.c.aux_over_sequence ? tape.inputs().sequences : 1;
  const Tensor counts = back.Scratch({G, r.E + 1}, DType::kF64);
  const Tensor dshares = back.Scratch({G, r.E}, r.logits.dtype());
  auto* const numbers = static_cast<double*>(counts.data());
  args.tokens = tape.tokens() / G;
  args.first = FirstToken(tape, r.N);
  args.dshares = dshares.data();
  if (r.loads != nullptr) {
    kernels.balance(back.stream(), {.G = 1,
                                    .E = r.E,
                                    .k = args.k,
                                    .weight = r.c.aux_loss,
                                    .loads = r.loads->weight().data(),
                                    .dshares = dshares.data()});
    return;
  }
  kernels.count_pairs(back.stream(), {.N = r.N,
                                      .E = r.E,
                                      .k = args.k,
                                      .G = G,
                                      .tokens = args.tokens,
                                      .first = args.first,
                                      .ids = args.ids,
                                      .targets = args.targets,
                                      .counts = numbers});
  for (VisitGroup* const group : RanksOfTokens(tape)) {
    group->AllReduce(numbers, counts.elements(), DType::kF64,
                     VisitGroup::Reduction::kSum);
  }
  kernels.balance(back.stream(), {.G = G,
                                  .E = r.E,
                                  .k = args.k,
                                  .weight = r.c.aux_loss,
                                  .counts = numbers,
                                  .dshares = dshares.data()});
}

void RouteGrad(Backward& back, const Routed& r) {
  if (!r.logits.needs_grad()) return;
  const Tape& tape = r.logits.tape();
  const Kernels& kernels = KernelsOf(tape, r.logits.dtype());
  RouteBackwardArgs args = {.N = r.N,
                            .E = r.E,
                            .k = r.c.top_k,
                            .form = r.c.form,
                            .logits = r.logits.data(),
                            .ids = Ints(r.ids),
                            .dgates = back.grad(r.gates).data(),
                            .dz = r.c.z_loss,
                            .targets = TargetsOf(tape, r.N)};
  if (r.c.aux_loss > 0) {
    Balance(back, r, args);
    args.balance =
        static_cast<double*>(back.Scratch({r.N}, DType::kF64).data());
  }
  args.dlogits = back.NewGrad(r.logits).data();
  kernels.route_backward(back.stream(), args);
  if (args.balance == nullptr || r.sums == nullptr) return;
  kernels.sum_rows(back.stream(), {.R = 1,
                                   .N = r.N,
                                   .rows = args.balance,
                                   .sums = r.Sum(RouteSum::kBalance)});
}

void CheckFits(const RouteConfig& c, int64_t E, const Param* bias) {
  const RouterForm& form = c.form;
  DELINK_CHECK(E % form.prototypes == 0 && c.top_k % form.prototypes == 0)
      << form.prototypes << " prototypes of " << E << " experts, " << c.top_k
      << " chosen";
  const int64_t range = E / form.prototypes;
  const int64_t open =
      form.top_groups > 0 ? range / form.groups * form.top_groups : range;
  DELINK_CHECK_EQ(range % form.groups, 0);
  DELINK_CHECK_LE(c.top_k / form.prototypes, open) << "of " << E << " experts";
  if (bias != nullptr) DELINK_CHECK_EQ(bias->shape(), (Shape{E}));
}

}  // namespace

Var RouterLogits(Var x, Param& w) {
  const RouterSizes s{RowsOf(x.shape()), x.dim(-1), w.shape()[0]};
  DELINK_CHECK_EQ(w.shape(), (Shape{s.E, s.D}));
  Tape& tape = x.tape();
  const DType wide = StatisticsOf(x.dtype());
  DELINK_CHECK(w.weight().dtype() == wide) << "a router's weights are exact";
  const Var y = tape.Output({s.N, s.E}, wide);
  tape.Inspect("input of the router", x);
  const Tensor input = Widened(tape, x);
  KernelsOf(tape, wide)
      .matmul(tape.stream(), {.m = s.N,
                              .n = s.E,
                              .k = s.D,
                              .transpose_b = true,
                              .a = input.data(),
                              .lda = s.D,
                              .b = w.weight().data(),
                              .ldb = s.D,
                              .c = y.data(),
                              .ldc = s.E});
  const double flops = 2.0 * static_cast<double>(s.N * s.D * s.E);
  tape.Record(
      {.name = "router",
       .inputs = {x},
       .outputs = {y},
       .weight_saves = {x},
       .by_token = true,
       .own_rows = true,
       .mixes_columns = true,
       .input = [=, &w](Backward& b) { RouterInputGrad(b, s, x, y, w); },
       .weight = [=, &w](Backward& b) { RouterWeightGrad(b, s, x, y, w); },
       .flops = flops,
       .backward_flops = x.needs_grad() ? 2 * flops : flops,
       .weight_flops = flops},
      /*trains=*/true);
  return y;
}

Routing Route(Var logits, const RouteConfig& c, Param* bias, Param* loads) {
  DELINK_CHECK(loads == nullptr || !c.aux_over_sequence);
  const int64_t N = logits.dim(0), E = logits.dim(1), k = c.top_k;
  CheckFits(c, E, bias);
  Tape& tape = logits.tape();
  const int64_t limit = MostOfExpert(tape, c, N, E);
  Routing r = {.N = N,
               .E = E,
               .k = k,
               .cap = std::min(N * k, E * limit),
               .limit = limit,
               .batches = 1,
               .choices = N * k,
               .experts = E,
               .prototypes = c.form.prototypes,
               .gates = tape.Output({N, k}, logits.dtype()),
               .offsets = tape.Output({E + 1}, DType::kI32),
               .rows = tape.Output({N, k}, DType::kI32),
               .pairs = tape.Output({N * k}, DType::kI32)};
  const Routed routed = {.c = c,
                         .N = N,
                         .E = E,
                         .loads = loads,
                         .logits = logits,
                         .ids = tape.Output({N, k}, DType::kI32),
                         .gates = r.gates,
                         .sums = tape.Sums(E + kRouteSums)};
  KernelsOf(tape, logits.dtype())
      .route(tape.stream(),
             {.N = N,
              .E = E,
              .k = k,
              .form = c.form,
              .logits = logits.data(),
              .bias = bias != nullptr ? bias->weight().data() : nullptr,
              .gates = r.gates.data(),
              .ids = Ints(routed.ids)});
  tape.Inspect("output of the router", r.gates);
  if (tape.groups().expert != nullptr) {
    r.ids = tape.Output({N, k}, DType::kI32);
  }
  AssignRows(routed, r);
  OpRecord op{.name = "route",
              .inputs = {logits},
              .outputs = {r.gates, r.offsets, r.rows, r.pairs, routed.ids},
              .saves = {logits, routed.ids},
              .by_token = true,
              .own_rows = true,
              .mixes_columns = true,
              .input = [=](Backward& back) { RouteGrad(back, routed); }};
  if (r.ids.defined()) op.outputs.push_back(r.ids);
  if (bias != nullptr || loads != nullptr) {
    op.weight = [bias, loads](Backward& back) {
      for (Param* const param : {bias, loads}) {
        if (param == nullptr) continue;
        const Param::GradTarget zeros = param->TakeGrad();
        if (zeros.accumulate) continue;
        back.device().FillZero(back.stream(), zeros.value.data(),
                               zeros.value.bytes());
      }
    };
  }
  tape.Record(std::move(op));
  return r;
}

}  // namespace delink::ops
