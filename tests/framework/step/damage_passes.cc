// Ways to break passes other than a step, or to take one pass for another.
#include "tests/framework/step/damage.h"
#include "tests/framework/step/damage_tools.h"

namespace delink::step_test {
namespace {

// Of another kind of pass.
template <Op op>
Result Foreign(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  Instruction i{.op = op};
  if (op == Op::kInspect) i.layer = i.micro_batch = 0;
  if (op == Op::kProbe) i = {.op = op, .layer = 1, .slab = 0, .micro_batch = 0};
  if (op == Op::kUpdate || op == Op::kReduce) i.slab = 0;
  list.insert(list.begin() + dice.Below(static_cast<int32_t>(list.size()) + 1),
              i);
  return Damaged{{NameOf(i)}};
}

// Behind the backward that takes its gradient's place.
Result ProbeTooLate(Ranks& ranks, Dice& dice) {
  return MoveDown(ranks, dice, Op::kProbe,
                  [](const auto& i, const auto& probe) {
                    return (i.flags & kApart) != 0 && i.layer < probe.layer;
                  });
}

// Behind the visit that reads what it looks at.
Result InspectTooLate(Ranks& ranks, Dice& dice) {
  return MoveDown(ranks, dice, Op::kInspect, [](const auto& i, const auto& at) {
    return (i.op == Op::kForward || i.op == Op::kLoss) && NextLayer(at, i);
  });
}

Result FlipApart(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  Instruction& i = list[PickOp(list, Op::kBackward, dice)];
  i.flags ^= kApart;
  return Damaged{{NameOf(i)}};
}

Result ProbeOfAnotherSlab(Ranks& ranks, Dice& dice) {
  const int32_t slabs = ranks[0].shape.slabs;
  Instructions& list = AnyRank(ranks, dice);
  const int32_t at = PickOp(list, Op::kProbe, dice);
  if (at < 0) return std::nullopt;
  const std::string was = NameOf(list[at]);
  list[at].slab = (list[at].slab + dice.Between(1, slabs - 1)) % slabs;
  return Damaged{{was, NameOf(list[at])}};
}

}  // namespace

std::vector<Damage> DamagesOfOtherPasses() {
  return {
      {"an update among gradients", PassKind::kGradients, Foreign<Op::kUpdate>},
      {"a reduce in an evaluation", PassKind::kEvaluation,
       Foreign<Op::kReduce>},
      {"a sum in a step", PassKind::kStep, Foreign<Op::kSum>},
      {"an inspection in an evaluation", PassKind::kEvaluation,
       Foreign<Op::kInspect>},
      {"sum dropped", PassKind::kEvaluation, Drop<Op::kSum>},
      {"sum doubled", PassKind::kEvaluation, Double<Op::kSum>},
      {"sum before a loss", PassKind::kEvaluation, Before<Op::kSum, Op::kLoss>},
      {"sum in another lane", PassKind::kEvaluation, CollectiveInAnotherLane},
      {"inspection dropped", PassKind::kDiagnosis, Drop<Op::kInspect>},
      {"inspection doubled", PassKind::kDiagnosis, Double<Op::kInspect>},
      {"inspection before its forward", PassKind::kDiagnosis,
       Before<Op::kInspect, Op::kForward, SameVisit>},
      {"inspection after what it looks at", PassKind::kDiagnosis,
       InspectTooLate},
      {"sum before an inspection", PassKind::kDiagnosis,
       Before<Op::kSum, Op::kInspect>},
      {"a probe in a step", PassKind::kStep, Foreign<Op::kProbe>},
      {"a norm in a probe", PassKind::kProbe, Foreign<Op::kNorm>},
      {"probe dropped", PassKind::kProbe, Drop<Op::kProbe>},
      {"probe doubled", PassKind::kProbe, Double<Op::kProbe>},
      {"probe before its backward", PassKind::kProbe,
       Before<Op::kProbe, Op::kBackward, SameLayer>},
      {"probe after the next backward", PassKind::kProbe, ProbeTooLate},
      {"apart flags differ", PassKind::kProbe, FlipApart},
      {"probe of another slab", PassKind::kProbe, ProbeOfAnotherSlab},
      {"sum before a probe", PassKind::kProbe, Before<Op::kSum, Op::kProbe>},
      {"gradients apart in a step", PassKind::kStep, FlipApart},
      {"a reduce in a probe of one stage", PassKind::kProbe,
       Foreign<Op::kReduce>},
      {"reduce of a probe dropped", PassKind::kProbe, Drop<Op::kReduce>, true},
      {"reduce of a probe doubled", PassKind::kProbe, Double<Op::kReduce>,
       true},
      {"reduce before a probe", PassKind::kProbe,
       Before<Op::kReduce, Op::kProbe, SameSlab>, true},
  };
}

}  // namespace delink::step_test
