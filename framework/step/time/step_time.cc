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

// How long an instruction waits for exchanges that run beside its own work. All
// ranks have the same moments, at other times, and an exchange begins when the
// last of them has posted it.
double WaitedOver(const Link& link, const MeasuredTime& measured,
                  const std::vector<int64_t>& bytes) {
  struct Rank {
    double waited = 0, free = 0;  // seconds; when its link is free
  };
  std::vector<Rank> ranks(measured.moments.size());
  std::vector<double> posted(bytes.size());  // by the last rank
  for (size_t i = 0; i < measured.moments.front().size(); ++i) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      Rank& rank = ranks[r];
      const ExchangeMoment& moment = At(measured.moments[r], i);
      const double now = moment.at + rank.waited;
      double& begin = At(posted, moment.exchange);
      if (!moment.waits) {
        begin = std::max(begin, now);
        continue;
      }
      rank.free = std::max(rank.free, begin) +
                  link.BusySeconds(At(bytes, moment.exchange));
      rank.waited += std::max(moment.waited, rank.free + link.latency - now);
    }
  }
  return ranks[measured.place].waited;
}

// The seconds for which a rank's bus is busy in a step, one way: no run of many
// steps is faster, though two steps may be.
double OverBus(const std::vector<Column>& columns, const Costs& costs) {
  double most = 0;
  for (const Column& column : columns) {
    for (const RankProgram& rank : column) {
      const std::vector<Instruction>& all = rank.program->instructions;
      double to_device = 0, to_host = 0;
      for (size_t i = 0; i < all.size(); ++i) {
        if (!IsOverBus(all[i].lane)) continue;
        (IsToDevice(all[i].lane) ? to_device : to_host) +=
            costs(rank, static_cast<int32_t>(i)).busy;
      }
      most = std::max({most, to_device, to_host});
    }
  }
  return most;
}

}  // namespace

Cost CostOver(const Link& link, const MeasuredTime& measured,
              const Sent& sent) {
  const double busy = link.BusySeconds(sent.bytes);
  const bool overlaps =
      !measured.moments.empty() &&
      std::ranges::all_of(measured.moments, [&](const auto& of) {
        return of.size() == 2 * sent.each.size();
      });
  if (overlaps) {
    return {.time = measured.own + WaitedOver(link, measured, sent.each),
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
    time.first = true;
  } else {
    time.begin = computed[0];
    time.seconds = std::max(computed[1] - computed[0], OverBus(columns, costs));
  }
  time.times = std::move(times);
  return time;
}

}  // namespace delink
