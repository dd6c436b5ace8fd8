#include "layers/ops/slot_exchange.h"

#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "layers/ops/kernels_of.h"

namespace delink::ops {

// What the ops of an exchange share while a visit's forward or backward runs.
class SlotsInFlight {
 public:
  SlotsInFlight(const ExpertHop& hop, int64_t width, DType dtype)
      : group_(*hop.group),
        among_(hop.among),
        elements_(hop.cap * width),
        bytes_(hop.ranks() * elements_ * SizeOf(dtype)),
        dtype_(dtype),
        begun_(static_cast<size_t>(hop.parts)) {}

  void* Part(const Tensor& all, int part) const {
    return static_cast<char*>(all.data()) + part * bytes_;
  }
  void Begin(int part, const void* send, void* recv) {
    At(begun_, part) =
        group_.BeginAllToAll(send, recv, elements_, dtype_, among_);
  }
  void Finish(int part) { group_.Finish(At(begun_, part)); }

  // The gradient of all own slots, once the first part is to arrive.
  Tensor gradient;

 private:
  VisitGroup& group_;
  const VisitGroup::Among among_;
  const int64_t elements_;  // of a part, from one rank to another
  const int64_t bytes_;     // of a part
  const DType dtype_;
  std::vector<int64_t> begun_;
};

namespace {

template <typename Visit>
void Gather(Visit& visit, const ExpertHop& hop, const void* x, int64_t width,
            const Tensor& own) {
  KernelsOf(hop.slots.tape(), own.dtype())
      .gather_rows(visit.stream(), {.k = hop.k,
                                    .cap = hop.parts * hop.rows(),
                                    .D = width,
                                    .offsets = nullptr,
                                    .pairs = Ints(hop.pairs),
                                    .x = x,
                                    .y = own.data()});
}

template <typename Visit>
void AddUp(Visit& visit, const ExpertHop& hop, const Tensor& own, int64_t width,
           void* y) {
  KernelsOf(hop.slots.tape(), own.dtype())
      .combine_rows(visit.stream(), {.N = hop.N,
                                     .k = hop.k,
                                     .D = width,
                                     .rows = Ints(hop.slots),
                                     .x = own.data(),
                                     .y = y});
}

}  // namespace

Var ToSlots(Var x, const ExpertHop& hop, bool remakes) {
  Tape& tape = x.tape();
  const int64_t width = x.value().elements() / hop.N;
  const Var own = tape.Output({hop.parts * hop.rows(), width}, x.dtype());
  Gather(tape, hop, x.data(), width, own.value());
  OpRecord op{.name = "to_slots",
              .inputs = {x, hop.slots, hop.pairs},
              .outputs = {own},
              .saves = {hop.slots},
              .by_token = true,
              .own_rows = true};
  op.input = [=](Backward& back) {
    if (!x.needs_grad()) return;
    AddUp(back, hop, back.grad(own), width, back.NewGrad(x).data());
  };
  if (remakes) {
    op.saves.insert(op.saves.end(), {x, hop.pairs});
    op.remake = [=](Backward& back, const Tensor& again) {
      Gather(back, hop, x.data(), width, again);
    };
  }
  tape.Record(std::move(op));
  return own;
}

Var FromSlots(Var own, const ExpertHop& hop, const Shape& shape) {
  Tape& tape = own.tape();
  const int64_t width = own.dim(-1);
  const Var sum = tape.Output(shape, own.dtype());
  AddUp(tape, hop, own.value(), width, sum.data());
  tape.Record({.name = "from_slots",
               .inputs = {own, hop.slots, hop.pairs},
               .outputs = {sum},
               .saves = {hop.pairs},
               .by_token = true,
               .own_rows = true,
               .input = [=](Backward& back) {
                 if (!own.needs_grad()) return;
                 Gather(back, hop, back.grad(sum).data(), width,
                        back.NewGrad(own));
               }});
  return sum;
}

SlotsToRanks::SlotsToRanks(Var own, const ExpertHop& hop, bool remakes)
    : own_(own),
      remakes_(remakes),
      rows_(hop.rows()),
      flight_(std::make_shared<SlotsInFlight>(hop, own.dim(-1), own.dtype())) {}

void SlotsToRanks::Begin(int part) {
  Tape& tape = own_.tape();
  const Var arriving = tape.Output({rows_, own_.dim(-1)}, own_.dtype());
  flight_->Begin(part, flight_->Part(own_.value(), part), arriving.data());
  OpRecord op{.name = "begin_to_ranks",
              .inputs = {own_},
              .outputs = {arriving},
              .by_token = true,
              .own_rows = true};
  op.input = [own = own_, flight = flight_, part](Backward&) {
    if (own.needs_grad()) flight->Finish(part);
  };
  if (remakes_) {
    op.saves = {own_};
    op.remake = [own = own_, flight = flight_, part](Backward&,
                                                     const Tensor& again) {
      flight->Begin(part, flight->Part(own.value(), part), again.data());
    };
    op.end_remake = [flight = flight_, part](Backward&) {
      flight->Finish(part);
    };
  }
  tape.Record(std::move(op));
  arriving_.push_back(arriving);
}

Var SlotsToRanks::End(int part) {
  Tape& tape = own_.tape();
  flight_->Finish(part);
  const Var from = At(arriving_, part), to = tape.Alias(from);
  tape.Record({.name = "end_to_ranks",
               .inputs = {from, own_},
               .outputs = {to},
               .by_token = true,
               .own_rows = true,
               .input = [=, own = own_, flight = flight_](Backward& back) {
                 if (!own.needs_grad()) return;
                 // The last part is the first to come. Exchanges write their
                 // parts of this until the first part's begin_to_ranks.
                 if (!flight->gradient.defined()) {
                   flight->gradient = back.NewGrad(own);
                 }
                 back.PassGrad(to, from);  // and so keeps what is sent
                 flight->Begin(part, back.grad(to).data(),
                               flight->Part(flight->gradient, part));
               }});
  return to;
}

void SlotsFromRanks::Begin(Var y, int part) {
  Tape& tape = y.tape();
  const Var before = all_;
  if (part == 0) {
    flight_ = std::make_shared<SlotsInFlight>(hop_, y.dim(-1), y.dtype());
    all_ = tape.Output({hop_.parts * hop_.rows(), y.dim(-1)}, y.dtype());
  } else {
    all_ = tape.Alias(before);
  }
  flight_->Begin(part, y.data(), flight_->Part(all_.value(), part));
  OpRecord op{.name = "begin_from_ranks",
              .inputs = {y},
              .outputs = {all_},
              .by_token = true,
              .own_rows = true};
  if (part > 0) op.inputs.push_back(before);
  op.input = [=, flight = flight_, all = all_](Backward& back) {
    if (y.needs_grad()) flight->Finish(part);
    if (part > 0) back.PassGrad(all, before);
  };
  tape.Record(std::move(op));
  parts_.push_back(y);
}

Var SlotsFromRanks::End(const std::vector<Var>& prefetch) {
  Tape& tape = all_.tape();
  for (int part = 0; part < hop_.parts; ++part) flight_->Finish(part);
  const Var to = tape.Alias(all_);
  OpRecord op{.name = "end_from_ranks",
              .inputs = parts_,
              .outputs = {to},
              .by_token = true,
              .own_rows = true,
              .prefetch = prefetch};
  op.inputs.push_back(all_);
  op.input = [=, parts = parts_, from = all_,
              flight = flight_](Backward& back) {
    for (size_t i = parts.size(); i-- > 0;) {
      if (!parts[i].needs_grad()) continue;
      const auto part = static_cast<int>(i);
      flight->Begin(part, flight->Part(back.grad(to), part),
                    back.NewGrad(parts[i]).data());
    }
    back.PassGrad(to, from);  // and so keeps what is sent
  };
  tape.Record(std::move(op));
  return to;
}

}  // namespace delink::ops
