#include "framework/step/proof/joint_execution.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/step/proof/joint_meetings.h"
#include "framework/step/proof/rank_progress.h"

namespace delink {
namespace {

// Ways of a rank.
enum class WayOf : uint8_t {
  kToDevice,
  kToHost,
  kSends,
  kInside,
  kBetween,
  kCores
};

class JointExecution {
 public:
  JointExecution(const std::vector<Column>& columns, const Costs& costs)
      : costs_(costs) {
    for (const Column& column : columns) {
      for (const RankProgram& rank : column) {
        const auto facts = facts_.try_emplace(rank.program, *rank.program);
        ranks_.emplace_back(rank, facts.first->second);
      }
    }
    announced_.resize(ranks_.size());
    queued_.resize(ranks_.size());
    meetings_ = FindMeetings(ranks_, columns.front().size());
    if (costs_ == nullptr) return;
    for (const RankProgress& rank : ranks_) {
      causes_.emplace_back(size_t{2} * rank.count);
      ready_.emplace_back(rank.count);
    }
  }

  absl::Status Run() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) Recheck(rank);
    do {
      while (!recheck_.empty()) {
        const int rank = recheck_.front();
        recheck_.pop();
        queued_[rank] = false;
        CompleteHeads(rank);
      }
    } while (CompleteOnWay());
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const int32_t head = ranks_[rank].Head(lane);
        if (head >= 0) return Deadlock({static_cast<int>(rank), head});
      }
    }
    return absl::OkStatus();
  }

  JointTimes Times() {
    JointTimes times;
    for (const RankProgress& rank : ranks_) {
      const auto second = rank.intervals.begin() + rank.count;
      times.first.emplace_back(rank.intervals.begin(), second);
      times.second.emplace_back(second, rank.intervals.end());
    }
    times.causes = std::move(causes_);
    return times;
  }

 private:
  // One that shares a way with others, and could begin at `ready`.
  struct OnWay {
    double ready = 0;
    Waiting at;
    int lane = 0;
    Cause cause;
    bool operator>(const OnWay& other) const {
      return std::tie(ready, lane, at.rank) >
             std::tie(other.ready, other.lane, other.at.rank);
    }
  };

  void Recheck(size_t rank) {
    if (queued_[rank]) return;
    queued_[rank] = true;
    recheck_.push(static_cast<int>(rank));
  }

  // Goes round the lanes of a rank until nothing can be completed. One that
  // waits for other ranks or a way is announced to them once.
  void CompleteHeads(int rank) {
    const RankProgress& own = ranks_[rank];
    for (bool progress = true; progress;) {
      progress = false;
      for (int lane = 0; lane < kLanes; ++lane) {
        for (;;) {
          const int32_t head = own.Head(lane);
          if (head < 0 || announced_[rank][lane] || !own.IsReady(head)) break;
          announced_[rank][lane] = true;
          if (Announce({rank, head})) progress = true;
        }
      }
    }
  }

  // Whether it was completed.
  bool Announce(const Waiting& at) {
    const RankProgress& own = ranks_[at.rank];
    const RankProgress::Ready ready = own.ReadyAt(at.position);
    const Cause cause = {ready.after < 0 ? -1 : at.rank, ready.after};
    if (costs_ != nullptr) {
      causes_[at.rank][at.position] = cause;
      ready_[at.rank][at.position % own.count] = ready.time;
    }
    const int32_t met = own.met[at.position % own.count];
    if (met < 0) return Begin({ready.time, at, 0, cause});
    Meeting& meeting = meetings_[met];
    Meeting::Step& step = meeting.steps[at.position / own.count];
    if (step.ready == 0 || ready.time > step.latest) {
      step.latest = ready.time;
      step.cause = cause;
    }
    if (++step.ready < std::ssize(meeting.members)) return false;
    const Partner& leader = LeaderOf(meeting);
    const RankProgress& leads = ranks_[leader.rank];
    const int32_t round = at.position / own.count;
    return Begin({step.latest,
                  {leader.rank, round * leads.count + leader.index},
                  0,
                  step.cause});
  }
  // The one that sends, else the first.
  const Partner& LeaderOf(const Meeting& meeting) const {
    const Partner& first = meeting.members.front();
    const Instruction& at =
        ranks_[first.rank].rank.program->instructions[first.index];
    return at.op == Op::kRecv ? meeting.members.back() : first;
  }

  // Completes one that all are ready for, unless it shares a way.
  bool Begin(OnWay one) {
    one.lane = static_cast<int>(InstructionAt(one.at).lane);
    if (SharesWay(one.at)) {
      on_ways_.push(one);
      return false;
    }
    Complete(one.at, one.ready, one.cause);
    return true;
  }

  // Completes the one that is ready first; false: none is.
  bool CompleteOnWay() {
    if (on_ways_.empty()) return false;
    const OnWay one = on_ways_.top();
    on_ways_.pop();
    double begin = one.ready;
    Cause cause = one.cause;
    ForEachWay(one.at, [&](Way& way, double, const Waiting&) {
      if (way.free <= begin) return;
      begin = way.free;
      cause = way.user;
    });
    ForEachWay(one.at, [&](Way& way, double busy, const Waiting& user) {
      way = {begin + busy, {user.rank, user.position}};
    });
    Complete(one.at, begin, cause);
    return true;
  }

  const Instruction& InstructionAt(const Waiting& at) const {
    const RankProgress& own = ranks_[at.rank];
    return own.rank.program->instructions[at.position % own.count];
  }

  // Calls visit(Waiting) for all that are done together with it, and itself.
  template <typename Visit>
  void ForEachMember(const Waiting& at, Visit visit) const {
    const RankProgress& own = ranks_[at.rank];
    const int32_t met = own.met[at.position % own.count];
    if (met < 0) {
      visit(at);
      return;
    }
    const int32_t step = at.position / own.count;
    for (const Partner& of : meetings_[met].members) {
      visit(Waiting{of.rank, step * ranks_[of.rank].count + of.index});
    }
  }

  bool SharesWay(const Waiting& at) const {
    if (costs_ == nullptr) return false;
    const Instruction& of = InstructionAt(at);
    if (IsTransfer(of)) return true;
    bool shares = IsOverBus(of.lane) && CostOf(at).busy > 0;
    ForEachMember(at, [&](const Waiting& member) {
      const Cost cost = CostOf(member);
      shares = shares || cost.inside > 0 || cost.between > 0 || cost.cores > 0;
    });
    return shares;
  }

  // When it is free, and who used it last.
  struct Way {
    double free = 0;
    Cause user;
  };
  // Calls visit(way, seconds for which it is busy, who uses it) for all that it
  // and those with which it is done use.
  template <typename Visit>
  void ForEachWay(const Waiting& at, Visit visit) {
    const Instruction& of = InstructionAt(at);
    if (IsOverBus(of.lane)) {
      const WayOf way = IsToDevice(of.lane) ? WayOf::kToDevice : WayOf::kToHost;
      const double busy = CostOf(at).busy;
      if (busy > 0) visit(ways_[{at.rank, way}], busy, at);
    } else if (IsTransfer(of)) {
      visit(ways_[{at.rank, WayOf::kSends}], CostOf(at).busy, at);
    }
    ForEachMember(at, [&](const Waiting& member) {
      const Cost cost = CostOf(member);
      if (cost.inside > 0) {
        visit(ways_[{member.rank, WayOf::kInside}], cost.inside, member);
      }
      if (cost.between > 0) {
        visit(ways_[{member.rank, WayOf::kBetween}], cost.between, member);
      }
      if (cost.cores > 0) {
        visit(ways_[{member.rank, WayOf::kCores}], cost.cores, member);
      }
    });
  }

  void Complete(const Waiting& at, double begin, const Cause& cause) {
    double time = 0;
    if (costs_ != nullptr) {
      ForEachMember(at, [&](const Waiting& member) {
        time = std::max(time, CostOf(member).time);
      });
    }
    ForEachMember(at, [&](const Waiting& member) {
      RankProgress& own = ranks_[member.rank];
      const auto lane = static_cast<int>(InstructionAt(member).lane);
      own.Complete(member.position, {begin, begin + time});
      announced_[member.rank][lane] = false;
      // Of those that were ready last, each has its own cause.
      if (costs_ != nullptr &&
          ready_[member.rank][member.position % own.count] < begin) {
        causes_[member.rank][member.position] = cause;
      }
      Recheck(member.rank);
    });
  }

  Cost CostOf(const Waiting& at) const {
    const RankProgress& own = ranks_[at.rank];
    return costs_(own.rank, at.position % own.count);
  }

  // Follows `waits`, on a stuck rank, to the instruction that must come first
  // and waits for other ranks alone.
  Waiting FirstOf(Waiting waits) const {
    const RankProgress& own = ranks_[waits.rank];
    while (!own.IsReady(waits.position)) {
      waits.position = own.Before(waits.position);
    }
    return waits;
  }
  // The instruction of another rank for which such an instruction waits.
  Waiting NextOf(const Waiting& waits) const {
    std::optional<Waiting> next;
    ForEachMember(waits, [&](const Waiting& member) {
      if (next.has_value()) return;
      if (!ranks_[member.rank].IsReady(member.position)) next = FirstOf(member);
    });
    DELINK_CHECK(next.has_value()) << "everybody is ready for it";
    return *next;
  }

  // Names the ranks that wait for each other in turn.
  absl::Status Deadlock(const Waiting& stuck) const {
    std::vector<Waiting> cycle = {FirstOf(stuck)};
    for (;;) {
      const Waiting next = NextOf(cycle.back());
      const auto known = std::find(cycle.begin(), cycle.end(), next);
      if (known != cycle.end()) {
        cycle.erase(cycle.begin(), known);
        break;
      }
      cycle.push_back(next);
    }
    std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()),
                cycle.end());
    std::string text = ": waits for ever for ";
    for (size_t k = 1; k < cycle.size(); ++k) {
      absl::StrAppend(&text, NameOf(cycle[k]), ", which comes first and waits ",
                      "for ");
    }
    const std::string first = NameOf(cycle.front());
    return absl::InvalidArgumentError(
        absl::StrCat(first, text, "that: lanes deadlock by their order"));
  }

  std::string NameOf(const Waiting& waits) const {
    const RankProgress& own = ranks_[waits.rank];
    return delink::NameOf(own.rank, waits.position % own.count);
  }

  const Costs& costs_;
  std::map<const Program*, ProgramFacts> facts_;
  std::vector<RankProgress> ranks_;  // by column, stage
  std::vector<Meeting> meetings_;
  // By rank and lane: whether its head waits for other ranks or for a way.
  std::vector<std::array<bool, kLanes>> announced_;
  std::queue<int> recheck_;   // ranks that may have something to complete
  std::vector<bool> queued_;  // by rank: is there
  std::priority_queue<OnWay, std::vector<OnWay>, std::greater<>> on_ways_;
  std::map<std::pair<int, WayOf>, Way> ways_;  // by rank
  std::vector<std::vector<Cause>> causes_;
  // By rank and instruction, in the step under way: when the rank was ready.
  std::vector<std::vector<double>> ready_;
};

}  // namespace

absl::StatusOr<JointTimes> ExecuteTogether(const std::vector<Column>& columns,
                                           const Costs& costs) {
  JointExecution execution(columns, costs);
  DELINK_RETURN_IF_ERROR(execution.Run());
  return execution.Times();
}

}  // namespace delink
