#include "framework/step/rendezvous.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/step/dependencies.h"

namespace delink {
namespace {

bool IsCollective(const Program& program, int32_t index) {
  const Instruction& i = program.instructions[index];
  return i.op == Op::kReduce || i.op == Op::kNorm || i.op == Op::kSum ||
         (i.op == Op::kFetch && program.shape.gathers[i.slab]);
}

using IndicesByLane = std::array<std::vector<int32_t>, kLanes>;

IndicesByLane SplitLanes(const Program& program) {
  IndicesByLane lanes;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    lanes[static_cast<int>(program.instructions[i].lane)].push_back(
        static_cast<int32_t>(i));
  }
  return lanes;
}

std::string Name(const RankProgram& rank, int32_t index) {
  return absl::StrCat("rank ", rank.rank, ": instruction ", index, ", ",
                      ToString(rank.program->instructions[index]));
}

std::vector<int32_t> CollectivesOf(const Program& program,
                                   const std::vector<int32_t>& lane) {
  std::vector<int32_t> collectives;
  for (const int32_t index : lane) {
    if (IsCollective(program, index)) collectives.push_back(index);
  }
  return collectives;
}

// The collectives of one lane of `other` against those of `first`.
absl::Status CompareLane(const RankProgram& first,
                         const std::vector<int32_t>& expected,
                         const RankProgram& other,
                         const std::vector<int32_t>& found, Lane lane) {
  for (size_t k = 0; k < std::max(expected.size(), found.size()); ++k) {
    const auto text = [k](const RankProgram& rank,
                          const std::vector<int32_t>& indices) {
      return k < indices.size()
                 ? ToString(rank.program->instructions[indices[k]])
                 : std::string("nothing");
    };
    if (text(first, expected) == text(other, found)) continue;
    const std::string where =
        k < found.size()
            ? Name(other, found[k])
            : absl::StrCat("rank ", other.rank, ": end of the program");
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": collective ", k, " of the ", ToString(lane), " lane is ",
        text(first, expected), " on rank ", first.rank, " and ",
        text(other, found),
        " here; collectives of a lane must have one order on all ranks"));
  }
  return absl::OkStatus();
}

// One rank's progress through two steps.
class Execution {
 public:
  explicit Execution(const RankProgram& rank)
      : rank_(rank),
        count_(static_cast<int32_t>(rank.program->instructions.size())),
        lanes_(SplitLanes(*rank.program)),
        analysis_(AnalyzeProgram(*rank.program)),
        done_(size_t{2} * count_, false) {}

  // The next position of a lane, -1 at the end of the second step.
  int32_t Head(int lane) const {
    const std::vector<int32_t>& order = lanes_[lane];
    const size_t next = next_[lane];
    if (next >= 2 * order.size()) return -1;
    return next < order.size() ? order[next]
                               : count_ + order[next - order.size()];
  }

  bool IsReady(int32_t position) const {
    const int32_t step = position / count_;
    const auto& dependencies = analysis_.dependencies[position % count_];
    return std::all_of(dependencies.begin(), dependencies.end(),
                       [&](const Dependency& d) {
                         const int32_t at = step - (d.previous_step ? 1 : 0);
                         return at < 0 || done_[at * count_ + d.instruction];
                       });
  }

  bool IsAtCollective(int lane) const {
    const int32_t head = Head(lane);
    return head >= 0 && IsCollective(*rank_.program, head % count_);
  }

  bool IsReadyToMeet(int lane) const {
    return IsAtCollective(lane) && IsReady(Head(lane));
  }

  void Complete(int lane) {
    done_[Head(lane)] = true;
    ++next_[lane];
  }

  // Runs all lanes up to their next collectives; whether anything ran.
  bool RunAlone() {
    bool any = false;
    for (bool progress = true; progress;) {
      progress = false;
      for (int lane = 0; lane < kLanes; ++lane) {
        while (Head(lane) >= 0 && !IsAtCollective(lane) &&
               IsReady(Head(lane))) {
          Complete(lane);
          progress = true;
        }
      }
      any |= progress;
    }
    return any;
  }

  const RankProgram& rank() const { return rank_; }
  int32_t count() const { return count_; }

 private:
  RankProgram rank_;
  int32_t count_;
  IndicesByLane lanes_;
  Analysis analysis_;
  std::vector<bool> done_;
  std::array<size_t, kLanes> next_{};
};

absl::Status Deadlock(const std::vector<Execution>& ranks) {
  for (int lane = 0; lane < kLanes; ++lane) {
    for (const Execution& waiting : ranks) {
      if (!waiting.IsReadyToMeet(lane)) continue;
      for (const Execution& late : ranks) {
        if (late.IsReadyToMeet(lane)) continue;
        const int32_t head = waiting.Head(lane) % waiting.count();
        return absl::InvalidArgumentError(absl::StrCat(
            Name(waiting.rank(), head), ": waits for ever for rank ",
            late.rank().rank, ", which must wait for another collective of ",
            "rank ", waiting.rank().rank,
            " first: collectives of several lanes deadlock by their order"));
      }
    }
  }
  return absl::InternalError("step: a valid program does not end");
}

absl::Status Execute(std::vector<Execution> ranks) {
  const auto meet = [&ranks](int lane) {
    for (const Execution& rank : ranks) {
      if (!rank.IsReadyToMeet(lane)) return false;
    }
    for (Execution& rank : ranks) rank.Complete(lane);
    return true;
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (Execution& rank : ranks) progress |= rank.RunAlone();
    for (int lane = 0; lane < kLanes; ++lane) progress |= meet(lane);
  }
  for (const Execution& rank : ranks) {
    for (int lane = 0; lane < kLanes; ++lane) {
      if (rank.Head(lane) >= 0) return Deadlock(ranks);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRendezvous(const std::vector<RankProgram>& ranks) {
  if (ranks.size() < 2) return absl::OkStatus();
  const RankProgram& first = ranks.front();
  const IndicesByLane lanes = SplitLanes(*first.program);
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto expected = CollectivesOf(*first.program, lanes[lane]);
    for (const RankProgram& other : ranks) {
      const auto found =
          CollectivesOf(*other.program, SplitLanes(*other.program)[lane]);
      DELINK_RETURN_IF_ERROR(
          CompareLane(first, expected, other, found, static_cast<Lane>(lane)));
    }
  }
  std::vector<Execution> executions;
  executions.reserve(ranks.size());
  for (const RankProgram& rank : ranks) executions.emplace_back(rank);
  return Execute(std::move(executions));
}

}  // namespace delink
