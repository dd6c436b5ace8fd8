#include "framework/step/time/step_time.h"

#include <algorithm>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/step/proof/visit_meetings.h"

namespace delink {

const Link& StepLinks::Of(const Instruction& at) const {
  if (IsTransfer(at)) return neighbours;
  if (IsOverBus(at.lane)) return bus;
  return IsVisit(at) || at.op == Op::kUpdate ? visits : network;
}

Sent SentWithin(const Program& program, const Instruction& at) {
  Sent sent;
  for (const VisitExchange& exchange : ExchangesIn(program, at)) {
    const int ranks = RanksOf(StageMesh(program.shape), exchange);
    const bool in_parts = exchange.kind != VisitExchange::Kind::kSum &&
                          exchange.kind != VisitExchange::Kind::kMax;
    ++sent.operations;
    sent.each.push_back(in_parts ? SentInParts(exchange.bytes, ranks)
                                 : SentForSum(exchange.bytes, ranks));
    sent.bytes += sent.each.back();
  }
  return sent;
}

namespace {

// How long an instruction waits for exchanges that run beside its own work.
double WaitedOver(const Link& link, const std::vector<ExchangeMoment>& moments,
                  const std::vector<int64_t>& bytes) {
  std::vector<double> posted(bytes.size());
  double waited = 0, free = 0;
  for (const ExchangeMoment& moment : moments) {
    const double now = moment.at + waited;
    double& at = At(posted, moment.exchange);
    if (!moment.waits) {
      at = now;
      continue;
    }
    free = std::max(free, at) + link.BusySeconds(At(bytes, moment.exchange));
    waited += std::max(moment.waited, free + link.latency - now);
  }
  return waited;
}

}  // namespace

Cost CostOver(const Link& link, const MeasuredTime& measured,
              const Sent& sent) {
  const double busy = link.BusySeconds(sent.bytes);
  if (!measured.moments.empty()) {
    return {
        .time = measured.own + WaitedOver(link, measured.moments, sent.each),
        .busy = busy};
  }
  const double over =
      static_cast<double>(sent.operations) * link.latency + busy;
  return {.time = measured.own + std::max(measured.exchanged, over),
          .busy = busy};
}

Costs CostsOver(const StepLinks& links, MeasuredCosts measured,
                SentBytes sent) {
  return [links, measured = std::move(measured), sent = std::move(sent)](
             const RankProgram& rank, int32_t index) {
    const Instruction& at = rank.program->instructions[index];
    return CostOver(links.Of(at), measured(rank, index), sent(rank, index));
  };
}

absl::StatusOr<StepTime> TimeStep(const std::vector<Column>& columns,
                                  const Costs& costs, bool drains) {
  StepTime time;
  DELINK_ASSIGN_OR_RETURN(JointTimes times, ExecuteTogether(columns, costs));
  const size_t stages = columns.front().size();
  double computed[2] = {0, 0};
  for (size_t rank = 0; rank < times.first.size(); ++rank) {
    const Program& program = *columns[rank / stages][rank % stages].program;
    double& end = time.ends.emplace_back(0);
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      end = std::max(end, times.first[rank][i].end);
      if (program.instructions[i].lane != Lane::kCompute) continue;
      computed[0] = std::max(computed[0], times.first[rank][i].end);
      computed[1] = std::max(computed[1], times.second[rank][i].end);
    }
  }
  if (drains) {
    time.seconds = *std::max_element(time.ends.begin(), time.ends.end());
    time.intervals = std::move(times.first);
  } else {
    time.begin = computed[0];
    time.seconds = computed[1] - computed[0];
    time.intervals = std::move(times.second);
  }
  return time;
}

}  // namespace delink
