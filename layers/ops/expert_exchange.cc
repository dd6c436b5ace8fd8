#include "layers/ops/expert_exchange.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "layers/ops/assign_rows.h"
#include "layers/ops/kernels_of.h"
#include "layers/ops/rows.h"

namespace delink::ops {
namespace {

// The most choices of a token that one range of `each` experts has: all of
// them, but of each prototype that the range meets at most k / prototypes.
int64_t MostChoices(const Routing& r, int64_t each) {
  const int64_t range = r.experts / r.prototypes;
  int64_t most = 0;
  for (int64_t first = 0; first < r.experts; first += each) {
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

// The most choices of E experts that a capacity leaves (Routing::limit).
int64_t MostKept(const Routing& r, int64_t E) {
  return E * r.limit * r.batches;
}

// The micro-batches that ranks of a group have tokens of. Those of a
// micro-batch are neighbours as well (Mesh::InStage).
int64_t MicroBatches(const Tape& tape) {
  const int64_t size = tape.groups().expert->size();
  int64_t ranks = 1;
  for (const VisitGroup* const of : RanksOfTokens(tape)) ranks *= of->size();
  if (size % ranks == 0 || ranks % size == 0) return (size + ranks - 1) / ranks;
  return (size + ranks - 2) / ranks + 1;  // a part of the first and the last
}

// N tokens with k choices each of `ranks` that share the experts of r. Gates
// are not written yet.
Routing ChoicesAt(const Routing& r, int ranks, int64_t N, int64_t k) {
  Routing to = r;
  to.N = N;
  to.E = r.E / ranks;
  to.k = k;
  to.batches = std::min(r.batches * ranks, MicroBatches(r.gates.tape()));
  to.gates = r.gates.tape().Output({N, k}, r.gates.dtype());
  to.ids = Var();
  return to;
}

void MakeRows(Routing& to, int64_t cap) {
  Tape& tape = to.gates.tape();
  to.cap = std::min(cap, MostKept(to, to.E));
  to.offsets = tape.Output({to.E + 1}, DType::kI32);
  to.rows = tape.Output({to.N, to.k}, DType::kI32);
  to.pairs = tape.Output({to.cap}, DType::kI32);
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

// The same with `ids` [N, k] of all experts; `own`, which may be the same
// memory, gets those of this rank's.
void SortOwn(const Routing& to, const VisitGroup& group, const Tensor& ids,
             const Tensor& own) {
  Tape& tape = to.gates.tape();
  KernelsOf(tape, to.gates.dtype())
      .kept_ids(tape.stream(), {.N = to.N,
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
  Routing own = r;
  own.E = r.E / group.size();
  own.gates = HandOn(r.gates, group);
  own.ids = Var();
  MakeRows(own, r.N * MostChoices(r, own.E));
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
  Routing all = ChoicesAt(r, group.size(), N, r.k);
  MakeRows(all, N * MostChoices(r, all.E));
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

// Exchanges between the slots of ranks, and between these and a rank's own
// tokens, k of D values each. Memory is a Tape's or a Backward's.
struct Exchange {
  VisitGroup* group;
  ExpertHop hop;
  int64_t D;
  DType dtype;

  int64_t count() const { return group->CountOf(hop.among) * hop.cap; }
  Tape& tape() const { return hop.slots.tape(); }

  // What the other ranks have for this one, of what this one has for them.
  void Swap(const Tensor& from, const Tensor& to) const {
    group->AllToAll(from.data(), to.data(), hop.cap * D, dtype, hop.among);
  }
  // x [N, D] to the slots of other ranks.
  template <typename Visit>
  void Send(Visit& visit, const void* x, const Tensor& to) const {
    const Tensor own = visit.Scratch({count(), D}, dtype);
    KernelsOf(tape(), dtype)
        .gather_rows(visit.stream(), {.k = hop.k,
                                      .cap = count(),
                                      .D = D,
                                      .offsets = nullptr,
                                      .pairs = Ints(hop.pairs),
                                      .x = x,
                                      .y = own.data()});
    Swap(own, to);
  }
  // From the slots of other ranks to y [N, D], added up.
  template <typename Visit>
  void Return(Visit& visit, const Tensor& from, void* y) const {
    const Tensor own = visit.Scratch({count(), D}, dtype);
    Swap(from, own);
    KernelsOf(tape(), dtype)
        .combine_rows(visit.stream(), {.N = hop.N,
                                       .k = hop.k,
                                       .D = D,
                                       .rows = Ints(hop.slots),
                                       .x = own.data(),
                                       .y = y});
  }
};

// A hop of the choices r to the ranks that share their experts: there are slots
// for `room` times a rank's mean share, but no more than there can be pairs.
ExpertHop HopOf(const Routing& r, VisitGroup& group, VisitGroup::Among among) {
  Tape& tape = r.gates.tape();
  ExpertHop hop = {.among = among, .N = r.N};
  const int64_t ranks = group.CountOf(among), E = r.E / ranks;
  // As many choices reach a rank in a hop as its own tokens have, in the mean.
  const int64_t pairs =
      hop.once() ? std::min(r.choices, r.N * ranks) : r.choices;
  const double share = static_cast<double>(pairs) / static_cast<double>(ranks);
  const double room = std::ceil(tape.inputs().expert_room * share);
  hop.k = hop.once() ? ranks : r.k;
  const int64_t most =
      std::min(r.N * (hop.once() ? 1 : MostChoices(r, E)), MostKept(r, E));
  hop.cap = std::clamp(static_cast<int64_t>(room), int64_t{1}, most);
  hop.slots = tape.Output({r.N, hop.k}, DType::kI32);
  hop.pairs = tape.Output({ranks * hop.cap}, DType::kI32);
  return hop;
}

// The gates of what takes a hop: of each token all, or of each choice its own.
Exchange OfGates(const ExpertHop& hop, VisitGroup& group, const Routing& r) {
  Exchange gates = {&group, hop, hop.once() ? r.k : 1, r.gates.dtype()};
  if (hop.once()) return gates;
  gates.hop.N = r.N * r.k;
  gates.hop.k = 1;
  return gates;
}

// Sends the choices r on their hop. The result has rows, unless another hop
// follows.
Routing SendChoices(const Routing& r, VisitGroup& group, const ExpertHop& hop,
                    bool last) {
  Tape& tape = r.gates.tape();
  const VisitInputs& inputs = tape.inputs();
  const int ranks = group.CountOf(hop.among);
  const int64_t N = ranks * hop.cap, k = hop.once() ? r.k : 1;
  Routing to = ChoicesAt(r, ranks, N, k);
  if (last) {
    MakeRows(to, N * (hop.once() ? MostChoices(r, to.E) : 1));
  } else {
    to.ids = tape.Output({N, k}, DType::kI32);
  }
  const Tensor own = tape.Scratch({N, k}, DType::kI32);
  const Tensor ids = last ? tape.Scratch({N, k}, DType::kI32) : to.ids.value();
  const bool counts = inputs.loss != nullptr && !inputs.again;
  KernelsOf(tape, r.gates.dtype())
      .assign_slots(tape.stream(),
                    {.N = r.N,
                     .k = r.k,
                     .ranks = ranks,
                     .each = to.E,
                     .cap = hop.cap,
                     .once = hop.once(),
                     .ids = Ints(r.ids),
                     .slots = Ints(hop.slots),
                     .pairs = Ints(hop.pairs),
                     .to_ids = Ints(own),
                     .lost = counts ? &inputs.loss->lost : nullptr});
  group.AllToAll(own.data(), ids.data(), hop.cap * k, DType::kI32, hop.among);
  if (last) SortRows(to, ids);
  const Exchange gates = OfGates(hop, group, r);
  gates.Send(tape, r.gates.data(), to.gates.value());
  OpRecord op{.name = "send_choices",
              .inputs = {r.gates, r.ids},
              .outputs = {to.gates, hop.slots, hop.pairs},
              .saves = {hop.slots},
              .by_token = true,
              .own_rows = true,
              .input = [=, from = r.gates, at = to.gates](Backward& back) {
                gates.Return(back, back.grad(at), back.NewGrad(from).data());
              }};
  if (last) {
    op.outputs.insert(op.outputs.end(), {to.offsets, to.rows, to.pairs});
  } else {
    op.outputs.push_back(to.ids);
  }
  tape.Record(std::move(op));
  return to;
}

Var SendTokens(Var x, const Exchange& exchange) {
  Tape& tape = x.tape();
  const Var y = tape.Output({exchange.count(), exchange.D}, exchange.dtype);
  exchange.Send(tape, x.data(), y.value());
  OpRecord op{.name = "send_tokens",
              .inputs = {x, exchange.hop.slots, exchange.hop.pairs},
              .outputs = {y},
              .saves = {exchange.hop.slots},
              .by_token = true,
              .own_rows = true};
  op.input = [=](Backward& back) {
    if (!x.needs_grad()) return;
    exchange.Return(back, back.grad(y), back.NewGrad(x).data());
  };
  if (tape.inputs().remake) {
    op.saves.insert(op.saves.end(), {x, exchange.hop.pairs});
    op.remake = [=](Backward& back, const Tensor& again) {
      exchange.Send(back, x.data(), again);
    };
  }
  tape.Record(std::move(op));
  return y;
}

Var ReturnTokens(Var y, const Exchange& exchange, const Shape& shape) {
  Tape& tape = y.tape();
  const Var sum = tape.Output(shape, exchange.dtype);
  exchange.Return(tape, y.value(), sum.data());
  tape.Record({.name = "return_tokens",
               .inputs = {y, exchange.hop.slots, exchange.hop.pairs},
               .outputs = {sum},
               .saves = {exchange.hop.pairs},
               .by_token = true,
               .own_rows = true,
               .input = [=](Backward& back) {
                 if (!y.needs_grad()) return;
                 exchange.Send(back, back.grad(sum).data(), back.NewGrad(y));
               }});
  return sum;
}

AtExperts SendTo(VisitGroup& group, Var x, const Routing& r) {
  using Among = VisitGroup::Among;
  std::vector<Among> hops = {Among::kAll};
  if (group.nodes() > 1) hops = {Among::kNodes, Among::kNode};
  if (group.nodes() == group.size()) hops.pop_back();
  AtExperts at = {.x = x, .r = r};
  for (const Among among : hops) {
    const ExpertHop hop = HopOf(at.r, group, among);
    const bool last = among == hops.back();
    const Routing from = at.r;
    at.r = SendChoices(from, group, hop, last);
    at.x = SendTokens(at.x, {&group, hop, x.dim(-1), x.dtype()});
    at.hops.push_back(hop);
  }
  return at;
}

}  // namespace

AtExperts ToExperts(Var x, const Routing& r) {
  const Tape& tape = x.tape();
  VisitGroup* const group = tape.groups().expert;
  if (group == nullptr) return {x, r};
  const VisitGroups& groups = tape.groups();
  DELINK_CHECK_EQ(r.E % group->size(), 0) << group->size() << " expert ranks";
  DELINK_CHECK(groups.tensor == nullptr || groups.sequence ||
               groups.same_tokens)
      << "tensor ranks have tokens in common";
  if (groups.same_tokens) {
    return {HandOn(x, *group), KeepChoices(r, *group)};
  }
  if (tape.inputs().expert_room > 0) return SendTo(*group, x, r);
  return {GatherPieces(x, *group, {group->size() * r.N, x.dim(-1)}),
          GatherChoices(r, *group)};
}

Var FromExperts(Var y, const AtExperts& at, const Shape& shape) {
  VisitGroup* const group = y.tape().groups().expert;
  if (group == nullptr) return y;
  if (y.tape().groups().same_tokens) return SumOver(y, *group);
  if (at.hops.empty()) return ScatterPieces(y, *group, shape);
  const int64_t D = y.dim(-1);
  for (size_t i = at.hops.size(); i-- > 0;) {
    const ExpertHop& hop = at.hops[i];
    y = ReturnTokens(y, {group, hop, D, y.dtype()},
                     i == 0 ? shape : Shape{hop.N, D});
  }
  return y;
}

}  // namespace delink::ops
