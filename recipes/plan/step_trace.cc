#include "recipes/plan/step_trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/file.h"
#include "framework/base/median.h"
#include "framework/base/status_macros.h"
#include "framework/base/strict_json.h"
#include "recipes/plan/lanes_report.h"

namespace delink {
namespace {

// "F(3,a) of blocks/2" of F(3,a).
bool IsNameOf(const std::string& name, const Instruction& at) {
  const std::string text = ToString(at);
  return name == text || name.starts_with(text + " of ");
}

// The same key on all ranks that run an instruction jointly; unique for any
// other instruction.
std::string MeetingOf(const RankProgram& rank, int64_t index) {
  const Instruction& at = At(rank.program->instructions, index);
  if (IsOverBus(at.lane)) return absl::StrCat(rank.rank, ":", index);
  return ToString(at.op == Op::kRecv ? OppositeOf(at) : at);
}

}  // namespace

// By rank and index.
class StepTrace::Medians {
 public:
  Medians(const StepTrace& trace, const std::vector<RankProgram>& ranks,
          const std::vector<int64_t>& steps, const SentBytes& sent) {
    for (const RankProgram& rank : ranks) {
      own_[rank.rank].resize(rank.program->instructions.size());
      exchanged_[rank.rank].resize(rank.program->instructions.size());
    }
    for (const int64_t step : steps) {
      const auto of = [&](const RankProgram& rank) -> const auto& {
        return trace.ranks_.at(rank.rank).at(step);
      };
      std::map<std::string, std::vector<double>> least;
      for (const RankProgram& rank : ranks) {
        for (const auto& [index, traced] : of(rank)) {
          Lessen(ExchangesOf(rank, index, traced),
                 least[MeetingOf(rank, index)]);
        }
      }
      for (const RankProgram& rank : ranks) {
        for (const auto& [index, traced] : of(rank)) {
          Add(rank, static_cast<int32_t>(index), traced, least, sent);
        }
      }
    }
  }

  MeasuredTime Of(const RankProgram& rank, int32_t index) const {
    MeasuredTime time{.own = Median(At(own_.at(rank.rank), index)),
                      .exchanged = Median(At(exchanged_.at(rank.rank), index))};
    const auto together = moments_.find(MeetingOf(rank, index));
    if (together == moments_.end()) return time;
    for (const auto& [of, moments] : together->second) {
      if (of == rank.rank) time.place = time.moments.size();
      std::vector<ExchangeMoment>& medians = time.moments.emplace_back();
      for (const std::vector<ExchangeMoment>& of_steps : moments) {
        ExchangeMoment& moment = medians.emplace_back(of_steps.front());
        std::vector<double> at, waited;
        for (const ExchangeMoment& one : of_steps) {
          at.push_back(one.at);
          waited.push_back(one.waited);
        }
        moment.at = Median(std::move(at));
        moment.waited = Median(std::move(waited));
      }
    }
    return time;
  }

 private:
  using Values = std::map<int, std::vector<std::vector<double>>>;

  // For a visit or an update, the exchanges within it; else all of it.
  static std::vector<double> ExchangesOf(const RankProgram& rank, int64_t index,
                                         const Traced& traced) {
    const Instruction& at = At(rank.program->instructions, index);
    if (!IsVisit(at) && at.op != Op::kUpdate) {
      return {traced.end - traced.begin};
    }
    std::vector<double> waited;
    for (const auto& exchange : traced.exchanges) {
      waited.push_back(exchange.waited);
    }
    return waited;
  }
  // Empty if every exchange is waited for at once. `least`: by exchange.
  static std::vector<ExchangeMoment> MomentsOf(
      const Traced& traced, const std::vector<double>& least) {
    std::vector<ExchangeMoment> moments;
    for (size_t i = 0; i < traced.exchanges.size(); ++i) {
      const auto& of = traced.exchanges[i];
      const auto exchange = static_cast<int32_t>(i);
      moments.push_back({exchange, false, of.posted, 0});
      moments.push_back({exchange, true, of.begin, least[i]});
    }
    const auto as_posted = moments;
    std::ranges::stable_sort(moments, {}, &ExchangeMoment::at);
    const auto same = [](const ExchangeMoment& a, const ExchangeMoment& b) {
      return a.exchange == b.exchange && a.waits == b.waits;
    };
    if (std::ranges::equal(moments, as_posted, same)) return {};
    double others = traced.begin;  // seconds that are not its own
    for (ExchangeMoment& moment : moments) {
      moment.at -= others;
      if (!moment.waits) continue;
      others += At(traced.exchanges, moment.exchange).waited;
    }
    return moments;
  }
  static void Lessen(const std::vector<double>& values,
                     std::vector<double>& least) {
    if (least.size() < values.size()) least.resize(values.size(), 1e300);
    for (size_t i = 0; i < values.size(); ++i) {
      least[i] = std::min(least[i], values[i]);
    }
  }
  void Add(const RankProgram& rank, int32_t index, const Traced& traced,
           const std::map<std::string, std::vector<double>>& least,
           const SentBytes& sent) {
    double own = traced.end - traced.begin, exchanged = 0;
    if (sent(rank, index).operations > 0) {
      for (const double part : ExchangesOf(rank, index, traced)) own -= part;
      const std::vector<double>& parts = least.at(MeetingOf(rank, index));
      for (const double part : parts) exchanged += part;
      const auto moments = MomentsOf(traced, parts);
      if (!moments.empty()) {
        auto& of = moments_[MeetingOf(rank, index)][rank.rank];
        if (of.empty()) of.resize(moments.size());
        // A step with others is not this program's, and gives none.
        for (size_t i = 0; i < of.size() && of.size() == moments.size(); ++i) {
          of[i].push_back(moments[i]);
        }
      }
    }
    At(own_.at(rank.rank), index).push_back(own);
    At(exchanged_.at(rank.rank), index).push_back(exchanged);
  }

  Values own_, exchanged_;
  // By meeting and rank, moment and step.
  std::map<std::string, std::map<int, std::vector<std::vector<ExchangeMoment>>>>
      moments_;
};

absl::StatusOr<StepTrace> StepTrace::Read(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const absl::StatusOr<nlohmann::json> json = ParseStrictJson(text);
  const auto wrong = [&](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", what, "; give a file of train --trace"));
  };
  if (!json.ok()) return wrong(std::string(json.status().message()));
  StepTrace trace;
  std::map<int, std::map<std::pair<int64_t, std::string>,
                         std::vector<Traced::Exchange>>>
      exchanges;
  try {
    for (const nlohmann::json& event : json->at("traceEvents")) {
      if (event.at("ph") != "X") continue;
      const nlohmann::json& args = event.at("args");
      const int rank = event.at("pid").get<int>();
      const auto step = args.at("step").get<int64_t>();
      const auto name = event.at("name").get<std::string>();
      const double begin = 1e-6 * event.at("ts").get<double>();
      const double took = 1e-6 * event.at("dur").get<double>();
      if (event.at("cat") == "Exchange") {
        const std::string of = name.substr(0, name.rfind(": "));
        const double posted = args.value("posted", 1e6 * begin);
        exchanges[rank][{step, of}].push_back({1e-6 * posted, begin, took});
      } else if (event.at("tid").get<int>() >= kLanes) {
        return wrong(
            "it was traced on a GPU, and costs are taken only from traces of a "
            "CPU");
      } else {
        trace.ranks_[rank][step][args.at("instruction").get<int64_t>()] = {
            .name = name,
            .bytes = args.value("bytes", int64_t{0}),
            .begin = begin,
            .end = begin + took};
      }
    }
  } catch (const nlohmann::json::exception& error) {
    return wrong(error.what());
  }
  for (auto& [rank, steps] : trace.ranks_) {
    for (auto& [step, instructions] : steps) {
      for (auto& [index, traced] : instructions) {
        traced.exchanges = std::move(exchanges[rank][{step, traced.name}]);
        std::ranges::stable_sort(traced.exchanges, {},
                                 &Traced::Exchange::posted);
      }
    }
  }
  return trace;
}

std::vector<int64_t> StepTrace::StepsOf(
    const std::vector<RankProgram>& ranks) const {
  std::vector<int64_t> steps;
  const auto is_of = [&](const RankProgram& rank, int64_t step) {
    const auto all = ranks_.find(rank.rank);
    if (all == ranks_.end()) return false;
    const auto found = all->second.find(step);
    const std::vector<Instruction>& program = rank.program->instructions;
    if (found == all->second.end() || found->second.size() != program.size()) {
      return false;
    }
    return std::ranges::all_of(found->second, [&](const auto& of) {
      return of.first < static_cast<int64_t>(program.size()) &&
             IsNameOf(of.second.name, At(program, of.first));
    });
  };
  if (ranks_.empty() || ranks_.size() != ranks.size()) return steps;
  for (const auto& [step, instructions] : ranks_.begin()->second) {
    const int64_t number = step;
    if (std::ranges::all_of(ranks, [&](const RankProgram& rank) {
          return is_of(rank, number);
        })) {
      steps.push_back(number);
    }
  }
  return steps;
}

double StepTrace::SecondsOf(const std::vector<RankProgram>& ranks,
                            const std::vector<int64_t>& steps) const {
  // When the last rank's compute lane ended.
  std::map<int64_t, double> ends;
  for (const RankProgram& rank : ranks) {
    for (const int64_t step : steps) {
      for (const auto& [index, of] : ranks_.at(rank.rank).at(step)) {
        const Instruction& at = At(rank.program->instructions, index);
        if (at.lane != Lane::kCompute) continue;
        ends[step] = std::max(ends[step], of.end);
      }
    }
  }
  std::vector<double> took;
  for (const auto& [step, end] : ends) {
    const auto next = ends.find(step + 1);
    if (next != ends.end()) took.push_back(next->second - end);
  }
  return took.empty() ? 0 : Median(std::move(took));
}

absl::StatusOr<std::optional<TracedTime>> StepTrace::Time(
    const PipelinePlan& plan, const Mesh& mesh, const StepLinks& links,
    bool drains) const {
  const std::vector<Column> columns = ColumnsOf(plan, mesh);
  std::vector<RankProgram> ranks;
  for (const Column& column : columns) {
    ranks.insert(ranks.end(), column.begin(), column.end());
  }
  const std::vector<int64_t> steps = StepsOf(ranks);
  if (steps.empty()) return std::nullopt;
  const SentBytes sent = [&](const RankProgram& rank, int32_t index) -> Sent {
    if (!IsOverBus(At(rank.program->instructions, index).lane)) {
      return At(At(plan.stages, rank.program->stage).sent, index);
    }
    const int64_t bytes =
        ranks_.at(rank.rank).at(steps.front()).at(index).bytes;
    return {.operations = bytes > 0 ? 1 : 0, .bytes = bytes};
  };
  const Medians medians(*this, ranks, steps, sent);
  const auto measured = [&medians](const RankProgram& rank, int32_t index) {
    return medians.Of(rank, index);
  };
  DELINK_ASSIGN_OR_RETURN(
      const StepTime time,
      TimeStep(columns, CostsOver(links, measured, sent), drains));
  TracedTime traced{.steps = static_cast<int64_t>(steps.size()),
                    .planned = time.seconds,
                    .ends = std::vector<double>(ranks.size())};
  for (size_t i = 0; i < ranks.size(); ++i) {
    At(traced.ends, ranks[i].rank) = time.ends[i];
  }
  for (size_t stage = 0; stage < columns.front().size(); ++stage) {
    const RankProgram& rank = columns.front()[stage];
    traced.lanes.push_back(
        {.rank = rank.rank,
         .uses = UseOfLanes(*rank.program, time, stage, kTimelineColumns)});
  }
  traced.traced = SecondsOf(ranks, steps);
  return traced;
}

}  // namespace delink
