#include "framework/step/time/critical_path.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "framework/base/at.h"

namespace delink {
namespace {

class Walk {
 public:
  Walk(const std::vector<Column>& columns, const StepTime& time,
       const PartsOfTime& parts)
      : columns_(columns), time_(time), parts_(parts) {}

  CriticalPath Find() {
    const double begin = time_.begin, end = time_.begin + time_.seconds;
    const Cause last = FindLast();
    rank_ = last.rank;
    // Back from the end, over the compute lane.
    double until = end;
    Cause at = last;
    if (LaneOf(at) != Lane::kCompute) {
      at = ComputeBefore(IntervalOf(at).end);
      const double from =
          at.rank < 0 ? begin : std::max(begin, IntervalOf(at).end);
      Wait(last, from, until);
      until = from;
    }
    while (until > begin && at.rank >= 0) {
      const double from = std::max(begin, IntervalOf(at).begin);
      Add(at, from, until);
      until = from;
      if (until <= begin) break;
      const Cause before = ComputeBefore(until);
      const double waits =
          before.rank < 0 ? begin : std::max(begin, IntervalOf(before).end);
      if (waits < until) Wait(CauseOf(at), waits, until);
      until = waits;
      at = before;
    }
    Count(kUnused, until - begin);
    CriticalPath path{.rank = ProgramOf(last).rank};
    path.parts.assign(seconds_.begin(), seconds_.end());
    std::ranges::stable_sort(path.parts, std::greater(),
                             &std::pair<std::string, double>::second);
    return path;
  }

 private:
  const RankProgram& ProgramOf(const Cause& at) const {
    const size_t stages = columns_.front().size();
    const auto rank = static_cast<size_t>(at.rank);
    return columns_[rank / stages][rank % stages];
  }
  int32_t IndexOf(const Cause& at) const {
    return at.position %
           static_cast<int32_t>(ProgramOf(at).program->instructions.size());
  }
  Lane LaneOf(const Cause& at) const {
    return ProgramOf(at).program->instructions[IndexOf(at)].lane;
  }
  const Interval& IntervalOf(const Cause& at) const {
    const Intervals& of =
        at.position == IndexOf(at) ? time_.times.first : time_.times.second;
    return of[at.rank][IndexOf(at)];
  }
  const Cause& CauseOf(const Cause& at) const {
    return time_.times.causes[at.rank][at.position];
  }

  // Of the step's rank that ends last; only lanes that bound the step.
  Cause FindLast() const {
    Cause last;
    double end = -1;
    for (int rank = 0; rank < std::ssize(time_.intervals()); ++rank) {
      const auto count = static_cast<int32_t>(time_.intervals()[rank].size());
      for (int32_t i = 0; i < count; ++i) {
        const Cause at = {rank, time_.first ? i : count + i};
        if (!time_.first && LaneOf(at) != Lane::kCompute) continue;
        if (IntervalOf(at).end < end) continue;
        if (IntervalOf(at).end == end && rank != last.rank) continue;
        end = IntervalOf(at).end;
        last = at;
      }
    }
    return last;
  }

  // The last of the rank's compute lane that begins before `until`, of those
  // that take time. Asked with falling times.
  Cause ComputeBefore(double until) {
    if (compute_.empty()) {
      const Program& program =
          *ProgramOf({.rank = rank_, .position = 0}).program;
      const auto count = static_cast<int32_t>(program.instructions.size());
      for (int32_t i = 0; i < (time_.first ? count : 2 * count); ++i) {
        const Cause at = {rank_, i};
        if (LaneOf(at) != Lane::kCompute) continue;
        if (IntervalOf(at).end > IntervalOf(at).begin) compute_.push_back(at);
      }
    }
    while (!compute_.empty() && IntervalOf(compute_.back()).begin >= until) {
      compute_.pop_back();
    }
    return compute_.empty() ? Cause() : compute_.back();
  }

  void Count(const std::string& word, double seconds) {
    if (seconds > 0) seconds_[word] += seconds;
  }

  // The part from `from` to `until` of an instruction of the rank.
  void Add(const Cause& at, double from, double until) {
    const Interval& of = IntervalOf(at);
    const double share =
        of.end > of.begin ? (until - from) / (of.end - of.begin) : 1;
    double rest = until - from;
    std::string last = kForSlowerRanks;
    for (const auto& [word, seconds] : parts_(ProgramOf(at), IndexOf(at))) {
      const double part = std::min(rest, seconds * share);
      Count(word, part);
      rest -= part;
      last = word;
    }
    const bool rounded = rest < 1e-9 * (until - from);
    Count(rounded ? last : kForSlowerRanks, rest);
  }

  // The rank waits from `from` to `until` for an instruction.
  void Wait(Cause at, double from, double until) {
    while (until > from && at.rank == rank_) {
      const double begin = std::max(from, IntervalOf(at).begin);
      if (begin < until) Add(at, begin, until);
      until = std::min(until, begin);
      at = CauseOf(at);
    }
    if (at.rank < 0) {
      Count(kUnused, until - from);
      return;
    }
    const Cause here = {.rank = rank_, .position = 0};
    const bool same =
        ProgramOf(at).program->stage == ProgramOf(here).program->stage;
    Count(same ? kForSlowerRanks : kForPipeline, until - from);
  }

  const std::vector<Column>& columns_;
  const StepTime& time_;
  const PartsOfTime& parts_;
  int rank_ = 0;
  std::vector<Cause> compute_;  // of the rank, ascending
  std::map<std::string, double> seconds_;
};

}  // namespace

CriticalPath FindCriticalPath(const std::vector<Column>& columns,
                              const StepTime& time, const PartsOfTime& parts) {
  return Walk(columns, time, parts).Find();
}

}  // namespace delink
