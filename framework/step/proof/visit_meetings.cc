#include "framework/step/proof/visit_meetings.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

const char* NameOf(Phase phase) {
  switch (phase) {
    case Phase::kEval:
      return "evaluation";
    case Phase::kForward:
      return "forward that keeps nothing";
    case Phase::kRecord:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kBackwardInput:
      return "first half of backward";
    case Phase::kBackwardWeight:
      break;
  }
  return "second half of backward";
}

std::string WithBytes(const VisitExchange& exchange) {
  return absl::StrCat(ToString(exchange), " of ", exchange.bytes, " bytes");
}

// Calls visit(VisitExchange) for those of an instruction, in order.
template <typename Visit>
void ForEachExchange(const Program& program, const Instruction& i,
                     Visit visit) {
  const ProgramShape& shape = program.shape;
  if (i.op == Op::kUpdate && !shape.update_exchanges.empty()) {
    for (const VisitExchange& exchange : At(shape.update_exchanges, i.slab)) {
      visit(exchange);
    }
  }
  if (shape.exchanges.empty() || !IsVisit(i)) return;
  for (const Phase phase : PhasesOf(program.kind, i)) {
    for (const VisitExchange& exchange :
         At(At(shape.exchanges, i.layer), phase)) {
      visit(exchange);
    }
  }
}

// One exchange of a program, and the instruction in which it is.
struct Met {
  int32_t index = 0;
  const VisitExchange* exchange = nullptr;
};

std::vector<Met> ExchangesOf(const Program& program, Lane lane, Axis axis) {
  std::vector<Met> found;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& at = program.instructions[i];
    if (at.lane != lane) continue;
    ForEachExchange(program, at, [&](const VisitExchange& exchange) {
      if (exchange.axis != axis) return;
      found.push_back({static_cast<int32_t>(i), &exchange});
    });
  }
  return found;
}

absl::Status CompareLane(const RankProgram& first, const RankProgram& other,
                         Lane lane, Axis axis) {
  const std::vector<Met> expected = ExchangesOf(*first.program, lane, axis);
  const std::vector<Met> found = ExchangesOf(*other.program, lane, axis);
  for (size_t k = 0; k < std::max(expected.size(), found.size()); ++k) {
    const auto text = [k](const RankProgram& rank,
                          const std::vector<Met>& exchanges) -> std::string {
      if (k >= exchanges.size()) return "nothing";
      const Met& met = exchanges[k];
      return absl::StrCat("the ", WithBytes(*met.exchange), " in ",
                          ToString(rank.program->instructions[met.index]));
    };
    if (text(first, expected) == text(other, found)) continue;
    const std::string where =
        k < found.size()
            ? delink::NameOf(other, found[k].index)
            : absl::StrCat("rank ", other.rank, ": end of the program");
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": exchange ", k, " of the ", ToString(lane),
        " lane's instructions over ", ToString(axis), " is ",
        text(first, expected), " on rank ", first.rank, " and ",
        text(other, found),
        " here; ranks that work on the same visits must have one order of "
        "them"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Phase> PhasesOf(PassKind kind, const Instruction& visit) {
  const bool again = (visit.flags & kRecompute) != 0;
  const bool keeps = (visit.flags & (kRecompute | kForwardOnly)) == 0;
  const Phase forward = kind == PassKind::kEvaluation ? Phase::kEval
                        : keeps                       ? Phase::kRecord
                                                      : Phase::kForward;
  std::vector<Phase> phases;
  switch (visit.op) {
    case Op::kForward:
      return {forward};
    case Op::kLoss:
      phases = {forward};
      if ((visit.flags & kForwardOnly) == 0) phases.push_back(Phase::kBackward);
      return phases;
    case Op::kBackward:
      if (again) phases = {Phase::kRecord};
      phases.push_back(Phase::kBackward);
      return phases;
    case Op::kBackwardInput:
      if (again) phases = {Phase::kRecord};
      phases.push_back(Phase::kBackwardInput);
      return phases;
    case Op::kBackwardWeight:
      return {Phase::kBackwardWeight};
    default:
      return {};
  }
}

std::vector<VisitExchange> ExchangesIn(const Program& program,
                                       const Instruction& i) {
  std::vector<VisitExchange> all;
  ForEachExchange(program, i, [&all](const VisitExchange& exchange) {
    all.push_back(exchange);
  });
  return all;
}

Axes AxesWithin(const Program& program, const Instruction& i) {
  Axes axes;
  ForEachExchange(program, i, [&](const VisitExchange& exchange) {
    axes.add(exchange.axis);
  });
  return axes;
}

bool AreBeside(const ProgramShape& shape, int place, int other, Axis axis) {
  if (axis == Axis::kExpert) {
    return place / shape.expert == other / shape.expert;
  }
  const int tensor = shape.tensor, both = shape.tensor * shape.context;
  const bool same_tensor = place % tensor == other % tensor;
  const bool same_context = place % both / tensor == other % both / tensor;
  return place / both == other / both &&
         (axis == Axis::kTensor || same_tensor) &&
         (axis == Axis::kContext || same_context);
}

int GroupWithin(const ProgramShape& shape, int place, Axes axes) {
  const int both = shape.tensor * shape.context;
  int along = 0, together = 1;
  for (const Axis axis : kVisitAxes) {
    if (!axes.has(axis)) continue;
    ++along;
    together = std::lcm(together, axis == Axis::kTensor   ? shape.tensor
                                  : axis == Axis::kExpert ? shape.expert
                                                          : both);
  }
  const bool by_context = along == 1 && axes.has(Axis::kContext);
  return place / together * together + (by_context ? place % shape.tensor : 0);
}

std::vector<std::string> DescribeExchanges(const ProgramShape& shape) {
  std::vector<std::string> lines;
  for (size_t layer = 0; layer < shape.exchanges.size(); ++layer) {
    for (int phase = 0; phase < kPhases; ++phase) {
      const auto& exchanges = At(shape.exchanges[layer], phase);
      for (size_t k = 0; k < exchanges.size(); ++k) {
        lines.push_back(absl::StrCat(
            "layer ", layer, ", ", NameOf(static_cast<Phase>(phase)),
            ": exchange ", k, " is ", WithBytes(exchanges[k])));
      }
    }
  }
  for (size_t slab = 0; slab < shape.update_exchanges.size(); ++slab) {
    const auto& exchanges = shape.update_exchanges[slab];
    for (size_t k = 0; k < exchanges.size(); ++k) {
      lines.push_back(absl::StrCat("slab ", slab, ", update: exchange ", k,
                                   " is ", WithBytes(exchanges[k])));
    }
  }
  return lines;
}

absl::Status CompareExchanges(const ProgramShape& shape,
                              const ProgramShape& first) {
  if (shape.exchanges == first.exchanges &&
      shape.update_exchanges == first.update_exchanges) {
    return absl::OkStatus();
  }
  const std::vector<std::string> here = DescribeExchanges(shape);
  const std::vector<std::string> there = DescribeExchanges(first);
  size_t line = 0;
  while (line < std::min(here.size(), there.size()) &&
         here[line] == there[line]) {
    ++line;
  }
  const auto text = [line](const std::vector<std::string>& lines) {
    return line < lines.size() ? lines[line] : std::string("no more");
  };
  return absl::InvalidArgumentError(absl::StrCat(
      "visits and updates exchange something else than on rank 0: '",
      text(here), "' here and '", text(there), "' there"));
}

absl::Status CheckVisitMeetings(const std::vector<Column>& columns) {
  const ProgramShape& shape = columns.front().front().program->shape;
  if (shape.exchanges.empty() && shape.update_exchanges.empty()) {
    return absl::OkStatus();
  }
  for (const Axis axis : kVisitAxes) {
    ComparedPrograms compared;
    for (int place = 0; place < shape.ranks; ++place) {
      int first = 0;
      while (!AreBeside(shape, first, place, axis)) ++first;
      if (first == place) continue;
      for (int32_t stage = 0; stage < shape.stages; ++stage) {
        const RankProgram& expected = At(At(columns, first), stage);
        const RankProgram& found = At(At(columns, place), stage);
        if (!compared.AreNew(expected, found)) continue;
        for (int lane = 0; lane < kLanes; ++lane) {
          DELINK_RETURN_IF_ERROR(
              CompareLane(expected, found, static_cast<Lane>(lane), axis));
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace delink
