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

// Routing::batches of what arrives from so many ranks. Those that have tokens
// of a micro-batch are neighbours as well (Mesh::InStage).
int64_t BatchesFrom(const Routing& r, int64_t ranks) {
  const Tape& tape = r.gates.tape();
  const int64_t size = tape.groups().expert->size();
  int64_t each = 1;
  for (const VisitGroup* const of : RanksOfTokens(tape)) each *= of->size();
  const bool even = size % each == 0 || each % size == 0;
  // Else a part of the first and the last.
  const int64_t all =
      even ? (size + each - 1) / each : (size + each - 2) / each + 1;
  return std::min(r.batches * ranks, all);
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
  Routing all = r;
  all.N = N;
  all.E = r.E / group.size();
  all.batches = BatchesFrom(r, group.size());
  all.gates = tape.Output({N, r.k}, r.gates.dtype());
  all.ids = Var();
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

// A hop of the choices r to the ranks that share their experts: there are slots
// for `room` times a range's mean share, but no more than there can be pairs.
ExpertHop HopOf(const Routing& r, VisitGroup& group, VisitGroup::Among among,
                int64_t parts) {
  Tape& tape = r.gates.tape();
  ExpertHop hop = {.group = &group, .among = among, .parts = parts, .N = r.N};
  const int64_t ranks = hop.ranks(), ranges = ranks * parts;
  // As many choices reach a rank in a hop as its own tokens have, in the mean.
  const int64_t pairs =
      hop.once() ? std::min(r.choices, r.N * ranks) : r.choices;
  const double share = static_cast<double>(pairs) / static_cast<double>(ranges);
  const double room = std::ceil(tape.inputs().expert_room * share);
  hop.k = hop.once() ? ranks : r.k;
  const int64_t E = r.E / ranges;
  const int64_t most =
      std::min(r.N * (hop.once() ? 1 : MostChoices(r, E)), MostKept(r, E));
  hop.cap = std::clamp(static_cast<int64_t>(room), int64_t{1}, most);
  hop.slots = tape.Output({r.N, hop.k}, DType::kI32);
  hop.pairs = tape.Output({parts * hop.rows()}, DType::kI32);
  return hop;
}

// Takes slots for the choices r. Returns the experts of what is in them, [parts
// rows, k or 1].
Var TakeSlots(const Routing& r, const ExpertHop& hop) {
  Tape& tape = r.gates.tape();
  const VisitInputs& inputs = tape.inputs();
  const bool counts = inputs.loss != nullptr && !inputs.again;
  const Var ids =
      tape.Output({hop.parts * hop.rows(), hop.once() ? r.k : 1}, DType::kI32);
  KernelsOf(tape, r.gates.dtype())
      .assign_slots(tape.stream(),
                    {.N = r.N,
                     .k = r.k,
                     .ranks = hop.ranks(),
                     .each = r.E / hop.ranks(),
                     .cap = hop.cap,
                     .parts = hop.parts,
                     .once = hop.once(),
                     .ids = Ints(r.ids),
                     .slots = Ints(hop.slots),
                     .pairs = Ints(hop.pairs),
                     .to_ids = Ints(ids),
                     .lost = counts ? &inputs.loss->lost : nullptr});
  tape.Record({.name = "take_slots",
               .inputs = {r.ids},
               .outputs = {hop.slots, hop.pairs, ids},
               .by_token = true,
               .own_rows = true});
  return ids;
}

// The gates of what takes a hop: of each token all, or of each choice its own.
Var GatesToSlots(const Routing& r, const ExpertHop& hop) {
  ExpertHop gates = hop;
  if (!hop.once()) {
    gates.N = r.N * r.k;
    gates.k = 1;
  }
  return ToSlots(r.gates, gates, /*remakes=*/false);
}

}  // namespace

ExpertExchange::ExpertExchange(Var x, const Routing& r)
    : group_(x.tape().groups().expert) {
  using Among = VisitGroup::Among;
  const Tape& tape = x.tape();
  const VisitGroups& groups = tape.groups();
  all_ = {x, r};
  if (group_ == nullptr) return;
  DELINK_CHECK_EQ(r.E % group_->size(), 0) << group_->size() << " expert ranks";
  DELINK_CHECK(groups.tensor == nullptr || groups.sequence ||
               groups.same_tokens)
      << "tensor ranks have tokens in common";
  if (groups.same_tokens) {
    all_ = {HandOn(x, *group_), KeepChoices(r, *group_)};
  } else if (tape.inputs().expert_room == 0) {
    all_ = {GatherPieces(x, *group_, {group_->size() * r.N, x.dim(-1)}),
            GatherChoices(r, *group_)};
  } else {
    among_ = {Among::kAll};
    if (group_->nodes() > 1) among_ = {Among::kNodes, Among::kNode};
    if (group_->nodes() == group_->size()) among_.pop_back();
    BeginHop(x, r);
  }
}

bool ExpertExchange::overlaps() const {
  return sends() && all_.x.tape().inputs().expert_overlap;
}

int ExpertExchange::parts() const {
  const bool cuts = overlaps() && among_.back() != VisitGroup::Among::kNodes;
  return cuts && all_.r.experts / group_->size() % 2 == 0 ? 2 : 1;
}

void ExpertExchange::BeginHop(Var x, const Routing& r) {
  const VisitGroup::Among among = among_[hops_.size()];
  const bool last = hops_.size() + 1 == among_.size();
  const ExpertHop hop = HopOf(r, *group_, among, last ? parts() : 1);
  const bool remakes = x.tape().inputs().remake;
  const Var ids = TakeSlots(r, hop);
  hops_.push_back(
      {.hop = hop,
       .from = r,
       .ids = SlotsToRanks(ids, hop, false),
       .gates = SlotsToRanks(GatesToSlots(r, hop), hop, false),
       .tokens = SlotsToRanks(ToSlots(x, hop, remakes), hop, remakes),
       .back = SlotsFromRanks(hop)});
  Hop& begun = hops_.back();
  for (int part = 0; part < hop.parts; ++part) {
    begun.ids.Begin(part);
    begun.gates.Begin(part);
    begun.tokens.Begin(part);
  }
}

AtExperts ExpertExchange::EndHop(int part) {
  Hop& begun = hops_.back();
  const ExpertHop& hop = begun.hop;
  Routing to = begun.from;
  to.N = hop.rows();
  to.E = begun.from.E / (hop.ranks() * hop.parts);
  to.first = part * to.E;
  to.k = hop.once() ? begun.from.k : 1;
  to.batches = BatchesFrom(begun.from, hop.ranks());
  to.choices = begun.from.choices * (part + 1) / hop.parts -
               begun.from.choices * part / hop.parts;
  to.ids = begun.ids.End(part);
  to.gates = begun.gates.End(part);
  const Var x = begun.tokens.End(part);
  begun.arrived.insert(begun.arrived.begin(), x);
  return {x, to};
}

AtExperts ExpertExchange::Arrive(int part) {
  if (!sends()) return all_;
  while (hops_.size() < among_.size()) {
    const AtExperts at = EndHop(0);
    BeginHop(at.x, at.r);
  }
  AtExperts at = EndHop(part);
  const int64_t each = hops_.back().hop.once() ? MostChoices(at.r, at.r.E) : 1;
  const Var ids = at.r.ids;
  at.r.ids = Var();
  MakeRows(at.r, at.r.N * each);
  SortRows(at.r, ids.value());
  ids.tape().Record({.name = "sort_rows",
                     .inputs = {ids},
                     .outputs = {at.r.offsets, at.r.rows, at.r.pairs},
                     .by_token = true,
                     .own_rows = true});
  return at;
}

void ExpertExchange::Return(Var y, int part) {
  y_ = y;
  if (sends()) hops_.back().back.Begin(y, part);
}

Var ExpertExchange::Result(const Shape& shape) {
  if (group_ == nullptr) return y_;
  if (!sends()) {
    return y_.tape().groups().same_tokens ? SumOver(y_, *group_)
                                          : ScatterPieces(y_, *group_, shape);
  }
  const int64_t D = shape[-1];
  for (size_t i = hops_.size(); i-- > 0;) {
    Hop& hop = hops_[i];
    if (i + 1 < hops_.size()) hop.back.Begin(y_, 0);
    y_ = FromSlots(hop.back.End(hop.arrived), hop.hop,
                   i == 0 ? shape : Shape{hop.hop.N, D});
  }
  return y_;
}

}  // namespace delink::ops
