#include "layers/ops/assign_rows.h"

#include <algorithm>
#include <cmath>

#include "layers/ops/kernels_of.h"

namespace delink::ops {

int64_t FirstToken(const Tape& tape, int64_t N) {
  return tape.groups().sequence ? tape.groups().tensor->rank() * N : 0;
}

const int32_t* TargetsOf(const Tape& tape, int64_t N) {
  const int32_t* const targets = tape.inputs().targets;
  return targets != nullptr ? targets + FirstToken(tape, N) : nullptr;
}

std::vector<VisitGroup*> RanksOfTokens(const Tape& tape) {
  std::vector<VisitGroup*> groups;
  if (tape.groups().sequence) groups.push_back(tape.groups().tensor);
  if (tape.groups().context != nullptr) groups.push_back(tape.groups().context);
  return groups;
}

namespace {

// All ranks' tokens of the micro-batch.
int64_t TokensOfAll(const Tape& tape, int64_t N) {
  for (const VisitGroup* const group : RanksOfTokens(tape)) N *= group->size();
  return N;
}

int64_t CapacityOf(const Tape& tape, const RouteConfig& c, int64_t N,
                   int64_t E) {
  if (c.capacity == 0 || !tape.inputs().training) return 0;
  const double pairs = static_cast<double>(TokensOfAll(tape, N) * c.top_k);
  return static_cast<int64_t>(
      std::ceil(c.capacity * (pairs / static_cast<double>(E))));
}

// x [count], of all ranks.
Tensor Gathered(Tape& tape, const void* x, int64_t count, DType dtype) {
  const std::vector<VisitGroup*> groups = RanksOfTokens(tape);
  int64_t ranks = 1, at = 0;
  for (const VisitGroup* const group : groups) {
    at += group->rank() * ranks;
    ranks *= group->size();
  }
  const Tensor all = tape.Scratch({ranks, count}, dtype);
  const auto bytes = static_cast<int64_t>(SizeOf(dtype));
  auto* const to = static_cast<char*>(all.data());
  tape.device().Copy(tape.stream(), to + at * count * bytes, x, count * bytes);
  int64_t each = count, own = at * count;
  for (VisitGroup* const group : groups) {
    const int64_t first = own - group->rank() * each;
    group->AllGather(to + first * bytes, each, dtype);
    own = first;
    each *= group->size();
  }
  return all;
}

// Where tokens of several ranks compete for capacity, all ranks decide alike
// about all of them. Returns this rank's ids, -1 for what is dropped; `loads`
// gets those of all tokens.
Tensor KeptIds(const Routed& r, int64_t capacity, const Tensor& loads) {
  Tape& tape = r.logits.tape();
  const Kernels& kernels = KernelsOf(tape, r.logits.dtype());
  const int64_t k = r.c.top_k, T = tape.tokens() / tape.inputs().sequences;
  const VisitGroup* const context = tape.groups().context;
  const Tensor numbers = tape.Scratch({r.N}, DType::kI32);
  auto* const own = Ints(numbers);
  kernels.number_tokens(tape.stream(),
                        {.N = r.N,
                         .T = T,
                         .R = T * (context != nullptr ? context->size() : 1),
                         .first = FirstToken(tape, r.N),
                         .places = tape.inputs().places,
                         .numbers = own});
  const int32_t* const targets = TargetsOf(tape, r.N);
  const Tensor all = Gathered(tape, own, r.N, DType::kI32);
  const int64_t N = all.elements();
  OrderTokensArgs order = {
      .N = N,
      .k = k,
      .numbers = Ints(all),
      .ids = Ints(Gathered(tape, r.ids.data(), r.N * k, DType::kI32)),
      .to_ids = Ints(tape.Scratch({N, k}, DType::kI32))};
  if (!r.c.drop_by_position) {
    const DType dtype = r.gates.dtype();
    order.gates = Gathered(tape, r.gates.data(), r.N * k, dtype).data();
    order.to_gates = tape.Scratch({N, k}, dtype).data();
  }
  if (targets != nullptr) {
    order.targets = Ints(Gathered(tape, targets, r.N, DType::kI32));
    order.to_targets = Ints(tape.Scratch({N}, DType::kI32));
  }
  kernels.order_tokens(tape.stream(), order);
  const AssignRowsArgs assign = {
      .N = N,
      .E = r.E,
      .k = k,
      .ids = order.to_ids,
      .targets = order.to_targets,
      .capacity = capacity,
      .gates = order.to_gates,
      .offsets = Ints(tape.Scratch({r.E + 1}, DType::kI32)),
      .rows = Ints(tape.Scratch({N, k}, DType::kI32)),
      .pairs = Ints(tape.Scratch({N * k}, DType::kI32)),
      .loads = Ints(loads)};
  kernels.assign_rows(tape.stream(), assign);
  const Tensor kept = tape.Scratch({r.N, k}, DType::kI32);
  kernels.kept_ids(tape.stream(), {.N = r.N,
                                   .k = k,
                                   .numbers = own,
                                   .rows = assign.rows,
                                   .E = r.E,
                                   .ids = Ints(r.ids),
                                   .kept = Ints(kept)});
  return kept;
}

// Adds to the sums of the step. `loads` are those of all ranks' tokens if
// `together`, which the first of them adds, else of this rank's.
void Record(const Routed& r, int64_t capacity, const Tensor& loads,
            bool together) {
  Tape& tape = r.logits.tape();
  const Kernels& kernels = KernelsOf(tape, r.logits.dtype());
  const Tensor rows = tape.Scratch({2, r.N}, DType::kF64);
  if (r.sums == nullptr || tape.inputs().again) return;
  bool first = true;
  for (const VisitGroup* const group : RanksOfTokens(tape)) {
    first = first && group->rank() == 0;
  }
  if (first || !together) {
    kernels.record_loads(
        tape.stream(),
        {.E = r.E, .capacity = capacity, .loads = Ints(loads), .sums = r.sums});
  }
  kernels.route_statistics(tape.stream(),
                           {.N = r.N,
                            .E = r.E,
                            .form = r.c.form,
                            .logits = r.logits.data(),
                            .targets = TargetsOf(tape, r.N),
                            .rows = static_cast<double*>(rows.data())});
  kernels.sum_rows(tape.stream(), {.R = 2,
                                   .N = r.N,
                                   .rows = static_cast<double*>(rows.data()),
                                   .sums = r.Sum(RouteSum::kEntropy)});
}

}  // namespace

int64_t MostOfExpert(const Tape& tape, const RouteConfig& c, int64_t N,
                     int64_t E) {
  const int64_t all = TokensOfAll(tape, N),
                capacity = CapacityOf(tape, c, N, E);
  const bool drops = capacity > 0 && tape.inputs().all_counted;
  return drops ? std::min(all, capacity) : all;
}

void AssignRows(const Routed& r, const Routing& to) {
  Tape& tape = r.logits.tape();
  const int64_t capacity = CapacityOf(tape, r.c, r.N, r.E);
  const Tensor loads = tape.Scratch({r.E}, DType::kI32);
  const bool together = capacity > 0 && !RanksOfTokens(tape).empty();
  const Tensor own = together ? tape.Scratch({r.E}, DType::kI32) : loads;
  const Tensor ids = together ? KeptIds(r, capacity, loads) : r.ids.value();
  KernelsOf(tape, r.logits.dtype())
      .assign_rows(tape.stream(),
                   {.N = r.N,
                    .E = r.E,
                    .k = r.c.top_k,
                    .ids = Ints(ids),
                    .targets = TargetsOf(tape, r.N),
                    .capacity = together ? 0 : capacity,
                    .gates = r.c.drop_by_position ? nullptr : r.gates.data(),
                    .offsets = Ints(to.offsets),
                    .rows = Ints(to.rows),
                    .pairs = Ints(to.pairs),
                    .loads = Ints(own)});
  if (to.ids.defined()) {
    KernelsOf(tape, r.logits.dtype())
        .kept_ids(tape.stream(), {.N = r.N,
                                  .k = r.c.top_k,
                                  .rows = Ints(to.rows),
                                  .E = r.E,
                                  .ids = Ints(r.ids),
                                  .kept = Ints(to.ids)});
  }
  Record(r, capacity, loads, together);
}

}  // namespace delink::ops
