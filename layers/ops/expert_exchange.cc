#include "layers/ops/expert_exchange.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "framework/base/check.h"
#include "layers/ops/kernels_of.h"
#include "layers/ops/rows.h"

namespace delink::ops {
namespace {

// The most choices of a token that one of the ranks has experts for: all of
// them, but of each prototype that its range meets at most k / prototypes.
int64_t MostChoices(const Routing& r, int ranks) {
  const int64_t each = r.E / ranks, range = r.E / r.prototypes;
  int64_t most = 0;
  for (int64_t first = 0; first < r.E; first += each) {
    int64_t choices = 0;
    for (int64_t p = first / range; p * range < first + each; ++p) {
      const int64_t experts =
          std::min(first + each, (p + 1) * range) - std::max(first, p * range);
      choices += std::min(experts, r.k / r.prototypes);
    }
    most = std::max(most, choices);
  }
  return most;
}

// The rows that tokens have with these gates [N, k], of choices of this rank's
// experts.
Routing RowsHere(const Routing& r, int ranks, Var gates, int64_t cap) {
  Tape& tape = gates.tape();
  const int64_t N = gates.dim(0), k = gates.dim(1);
  return {.N = N,
          .E = r.E / ranks,
          .k = k,
          .cap = cap,
          .choices = r.choices,
          .prototypes = r.prototypes,
          .gates = gates,
          .offsets = tape.Output({r.E / ranks + 1}, DType::kI32),
          .rows = tape.Output({N, k}, DType::kI32),
          .pairs = tape.Output({cap}, DType::kI32)};
}

// `ids` are those of this rank's experts, which it counts from 0.
void SortRows(const Routing& to, const Tensor& ids) {
  Tape& tape = to.gates.tape();
  KernelsOf(tape, to.gates.dtype())
      .assign_rows(tape.stream(),
                   {.N = to.N,
                    .E = to.E,
                    .k = to.k,
                    .ids = Ints(ids),
                    .offsets = Ints(to.offsets),
                    .rows = Ints(to.rows),
                    .pairs = Ints(to.pairs),
                    .loads = Ints(tape.Scratch({to.E}, DType::kI32))});
}

// The same with `ids` [N, k] of all experts, which may be `own`, of this
// rank's.
void SortOwn(const Routing& to, const VisitGroup& group, const Tensor& ids,
             const Tensor& own) {
  KernelsOf(to.gates.tape(), to.gates.dtype())
      .kept_ids(to.gates.tape().stream(), {.N = to.N,
                                           .k = to.k,
                                           .E = to.E,
                                           .first = group.rank() * to.E,
                                           .ids = Ints(ids),
                                           .kept = Ints(own)});
  SortRows(to, own);
}

// Of tokens that all ranks have.
Routing KeepChoices(const Routing& r, VisitGroup& group) {
  Tape& tape = r.gates.tape();
  const Routing own = RowsHere(r, group.size(), HandOn(r.gates, group),
                               r.N * MostChoices(r, group.size()));
  SortOwn(own, group, r.ids.value(), tape.Scratch({r.N, r.k}, DType::kI32));
  tape.Record({.name = "keep_choices",
               .inputs = {r.ids},
               .outputs = {own.offsets, own.rows, own.pairs},
               .by_token = true,
               .own_rows = true});
  return own;
}

Routing GatherChoices(const Routing& r, VisitGroup& group) {
  Tape& tape = r.gates.tape();
  const int64_t N = group.size() * r.N;
  const Routing all =
      RowsHere(r, group.size(), tape.Output({N, r.k}, r.gates.dtype()),
               N * MostChoices(r, group.size()));
  GatherTensor(tape.device(), tape.stream(), group, r.gates.value(),
               all.gates.value());
  const Tensor ids = tape.Scratch({N, r.k}, DType::kI32);
  GatherTensor(tape.device(), tape.stream(), group, r.ids.value(), ids);
  SortOwn(all, group, ids, ids);
  tape.Record({.name = "gather_choices",
               .inputs = {r.gates, r.ids},
               .outputs = {all.gates, all.offsets, all.rows, all.pairs},
               .by_token = true,
               .own_rows = true,
               .input = [=, &group](Backward& back) {
                 // One rank has the gradient of a choice, others have zero.
                 ScatterTensor(group, back.grad(all.gates),
                               back.NewGrad(r.gates));
               }});
  return all;
}

// How many slots two ranks have: enough for `room` times a rank's mean share of
// r's choices, but no more than there can be choices.
int64_t SlotsOf(const Routing& r, double room, int ranks) {
  const double share = static_cast<double>(r.N * r.k) / ranks;
  return std::clamp(static_cast<int64_t>(std::ceil(room * share)), int64_t{1},
                    r.N * MostChoices(r, ranks));
}

// Exchanges between the slots of ranks, and between these and a rank's own
// tokens, k of D values each. Memory is a Tape's or a Backward's.
struct Slots {
  VisitGroup* group;
  int64_t N, k, D, cap;
  DType dtype;
  Var slots, pairs;

  int64_t count() const { return group->size() * cap; }

  // What the other ranks have for this one, of what this one has for them.
  void Exchange(const Tensor& from, const Tensor& to) const {
    group->AllToAll(from.data(), to.data(), cap * D, dtype);
  }
  // x [N, D] to the slots of other ranks.
  template <typename Visit>
  void Send(Visit& visit, const void* x, const Tensor& to) const {
    const Tensor own = visit.Scratch({count(), D}, dtype);
    KernelsOf(slots.tape(), dtype)
        .gather_rows(visit.stream(), {.k = k,
                                      .cap = count(),
                                      .D = D,
                                      .offsets = nullptr,
                                      .pairs = Ints(pairs),
                                      .x = x,
                                      .y = own.data()});
    Exchange(own, to);
  }
  // From the slots of other ranks to y [N, D], added up.
  template <typename Visit>
  void Return(Visit& visit, const Tensor& from, void* y) const {
    const Tensor own = visit.Scratch({count(), D}, dtype);
    Exchange(from, own);
    KernelsOf(slots.tape(), dtype)
        .combine_rows(visit.stream(), {.N = N,
                                       .k = k,
                                       .D = D,
                                       .rows = Ints(slots),
                                       .x = own.data(),
                                       .y = y});
  }
};

Slots SlotsFor(const AtExperts& at, VisitGroup& group, const Routing& r,
               int64_t D, DType dtype) {
  return {.group = &group,
          .N = r.N,
          .k = r.k,
          .D = D,
          .cap = at.r.N / group.size(),
          .dtype = dtype,
          .slots = at.slots,
          .pairs = at.pairs};
}

// Of choices rather than of tokens: their gates.
Slots OfGates(const AtExperts& at, VisitGroup& group, const Routing& r) {
  Slots slots = SlotsFor(at, group, r, 1, r.gates.dtype());
  slots.N = r.N * r.k;
  slots.k = 1;
  return slots;
}

// All of the result but x.
AtExperts SendChoices(const Routing& r, VisitGroup& group) {
  Tape& tape = r.gates.tape();
  const VisitInputs& inputs = tape.inputs();
  const int64_t cap = SlotsOf(r, inputs.expert_room, group.size());
  const int64_t slots = group.size() * cap;
  const Var gates = tape.Output({slots, 1}, r.gates.dtype());
  AtExperts at = {.r = RowsHere(r, group.size(), gates, slots),
                  .slots = tape.Output({r.N, r.k}, DType::kI32),
                  .pairs = tape.Output({slots}, DType::kI32)};
  const Tensor ids = tape.Scratch({slots}, DType::kI32),
               own = tape.Scratch({slots}, DType::kI32);
  const bool counts = inputs.loss != nullptr && !inputs.again;
  KernelsOf(tape, r.gates.dtype())
      .assign_slots(tape.stream(),
                    {.N = r.N,
                     .k = r.k,
                     .ranks = group.size(),
                     .each = at.r.E,
                     .cap = cap,
                     .ids = Ints(r.ids),
                     .slots = Ints(at.slots),
                     .pairs = Ints(at.pairs),
                     .to_ids = Ints(own),
                     .lost = counts ? &inputs.loss->lost : nullptr});
  group.AllToAll(own.data(), ids.data(), cap, DType::kI32);
  SortRows(at.r, ids);
  OfGates(at, group, r).Send(tape, r.gates.data(), at.r.gates.value());
  const Routing& to = at.r;
  tape.Record(
      {.name = "send_choices",
       .inputs = {r.gates, r.ids},
       .outputs = {to.gates, to.offsets, to.rows, to.pairs, at.slots, at.pairs},
       .saves = {at.slots},
       .by_token = true,
       .own_rows = true,
       .input = [=, &group](Backward& back) {
         OfGates(at, group, r)
             .Return(back, back.grad(at.r.gates), back.NewGrad(r.gates).data());
       }});
  return at;
}

Var SendTokens(Var x, const Slots& slots) {
  Tape& tape = x.tape();
  const Var y = tape.Output({slots.count(), slots.D}, slots.dtype);
  slots.Send(tape, x.data(), y.value());
  OpRecord op{.name = "send_tokens",
              .inputs = {x, slots.slots, slots.pairs},
              .outputs = {y},
              .saves = {slots.slots},
              .by_token = true,
              .own_rows = true};
  op.input = [=](Backward& back) {
    if (!x.needs_grad()) return;
    slots.Return(back, back.grad(y), back.NewGrad(x).data());
  };
  if (tape.inputs().remake) {
    op.saves.insert(op.saves.end(), {x, slots.pairs});
    op.remake = [=](Backward& back, const Tensor& again) {
      slots.Send(back, x.data(), again);
    };
  }
  tape.Record(std::move(op));
  return y;
}

Var ReturnTokens(Var y, const Slots& slots, const Shape& shape) {
  Tape& tape = y.tape();
  const Var sum = tape.Output(shape, slots.dtype);
  slots.Return(tape, y.value(), sum.data());
  tape.Record({.name = "return_tokens",
               .inputs = {y, slots.slots, slots.pairs},
               .outputs = {sum},
               .saves = {slots.pairs},
               .by_token = true,
               .own_rows = true,
               .input = [=](Backward& back) {
                 if (!y.needs_grad()) return;
                 slots.Send(back, back.grad(sum).data(), back.NewGrad(y));
               }});
  return sum;
}

}  // namespace

AtExperts ToExperts(Var x, const Routing& r) {
  const Tape& tape = x.tape();
  VisitGroup* const group = tape.groups().expert;
  if (group == nullptr) return {x, r};
  DELINK_CHECK_EQ(r.E % group->size(), 0) << group->size() << " expert ranks";
  if (tape.groups().same_tokens) {
    return {HandOn(x, *group), KeepChoices(r, *group)};
  }
  const int64_t D = x.dim(-1);
  if (tape.inputs().expert_room == 0) {
    return {GatherPieces(x, *group, {group->size() * r.N, D}),
            GatherChoices(r, *group)};
  }
  AtExperts at = SendChoices(r, *group);
  at.x = SendTokens(x, SlotsFor(at, *group, r, D, x.dtype()));
  return at;
}

Var FromExperts(Var y, const AtExperts& at, const Shape& shape) {
  VisitGroup* const group = y.tape().groups().expert;
  if (group == nullptr) return y;
  if (y.tape().groups().same_tokens) return SumOver(y, *group);
  if (!at.slots.defined()) return ScatterPieces(y, *group, shape);
  const Shape& slots = at.slots.shape();
  const Routing own = {.N = slots[0], .k = slots[1]};
  return ReturnTokens(y, SlotsFor(at, *group, own, y.dim(-1), y.dtype()),
                      shape);
}

}  // namespace delink::ops
