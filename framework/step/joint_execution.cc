#include "framework/step/joint_execution.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/step/dependencies.h"
#include "framework/step/visit_meetings.h"

namespace delink {
namespace {

using IndicesByLane = std::array<std::vector<int32_t>, kLanes>;

IndicesByLane SplitLanes(const Program& program) {
  IndicesByLane lanes;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    lanes[static_cast<int>(program.instructions[i].lane)].push_back(
        static_cast<int32_t>(i));
  }
  return lanes;
}

// An instruction of one of the executed ranks.
struct Place {
  int rank = 0;
  int32_t index = 0;
};

// One of both steps, counted on.
struct Waiting {
  int rank = 0;
  int32_t position = 0;
  friend bool operator==(const Waiting&, const Waiting&) = default;
  friend bool operator<(const Waiting& a, const Waiting& b) {
    return std::pair(a.rank, a.position) < std::pair(b.rank, b.position);
  }
};

// Progress of one rank through two steps.
struct Progress {
  explicit Progress(const RankProgram& of)
      : rank(of),
        count(static_cast<int32_t>(of.program->instructions.size())),
        lanes(SplitLanes(*of.program)),
        analysis(AnalyzeProgram(*of.program)),
        met(count),
        done(size_t{2} * count, false),
        intervals(size_t{2} * count) {}

  // The next position of a lane, -1 at the end of the second step.
  int32_t Head(int lane) const {
    const std::vector<int32_t>& order = lanes[lane];
    const size_t at = next[lane];
    if (at >= 2 * order.size()) return -1;
    return at < order.size() ? order[at] : count + order[at - order.size()];
  }
  // Whether it is the next of its lane, and what it waits for is complete.
  bool IsReady(int32_t position) const {
    const Lane lane = rank.program->instructions[position % count].lane;
    if (Head(static_cast<int>(lane)) != position) return false;
    const auto& waits = analysis.dependencies[position % count];
    return std::all_of(waits.begin(), waits.end(), [&](const Dependency& d) {
      const int32_t at = PositionOf(d, position);
      return at < 0 || done[at];
    });
  }
  int32_t PositionOf(const Dependency& d, int32_t waits) const {
    const int32_t step = waits / count - (d.previous_step ? 1 : 0);
    return step < 0 ? -1 : step * count + d.instruction;
  }
  // Where it is not ready: what it waits for in its own rank.
  int32_t Before(int32_t position) const {
    const Lane lane = rank.program->instructions[position % count].lane;
    const int32_t head = Head(static_cast<int>(lane));
    if (head != position) return head;
    for (const Dependency& d : analysis.dependencies[position % count]) {
      const int32_t at = PositionOf(d, position);
      if (at >= 0 && !done[at]) return at;
    }
    DELINK_CHECK(false) << "it is ready";
    return position;
  }
  // When that was.
  double ReadyAt(int32_t position) const {
    const Instruction& at = rank.program->instructions[position % count];
    double time = lane_ends[static_cast<int>(at.lane)];
    for (const Dependency& d : analysis.dependencies[position % count]) {
      const int32_t before = PositionOf(d, position);
      if (before >= 0) time = std::max(time, intervals[before].end);
    }
    return time;
  }
  void Complete(int32_t position, const Interval& interval) {
    const Instruction& at = rank.program->instructions[position % count];
    done[position] = true;
    intervals[position] = interval;
    lane_ends[static_cast<int>(at.lane)] = interval.end;
    ++next[static_cast<int>(at.lane)];
  }

  RankProgram rank;
  int32_t count;
  IndicesByLane lanes;
  Analysis analysis;
  std::vector<std::vector<Place>> met;  // by instruction: on other ranks
  std::vector<bool> done;
  std::vector<Interval> intervals;
  std::array<size_t, kLanes> next{};
  std::array<double, kLanes> lane_ends{};
};

class JointExecution {
 public:
  JointExecution(const std::vector<Column>& columns, const Costs& costs)
      : costs_(costs), stages_(columns.front().size()) {
    for (const Column& column : columns) {
      for (const RankProgram& rank : column) ranks_.emplace_back(rank);
    }
    FindMeetings();
  }

  absl::Status Run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        for (int lane = 0; lane < kLanes; ++lane) {
          while (CompleteHead(static_cast<int>(rank), lane)) progress = true;
        }
      }
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const int32_t head = ranks_[rank].Head(lane);
        if (head >= 0) return Deadlock({static_cast<int>(rank), head});
      }
    }
    return absl::OkStatus();
  }

  std::vector<std::vector<Interval>> FirstStep() const {
    std::vector<std::vector<Interval>> intervals;
    for (const Progress& rank : ranks_) {
      intervals.emplace_back(rank.intervals.begin(),
                             rank.intervals.begin() + rank.count);
    }
    return intervals;
  }

 private:
  // What an instruction is on every rank that meets in it.
  using Key = std::tuple<Op, Lane, int32_t, int32_t, int32_t, uint8_t>;
  static Key KeyOf(const Instruction& i) {
    // The two ends of a transfer are in lanes of their own.
    return {i.op,          IsTransfer(i) ? Lane::kCompute : i.lane,
            i.layer,       i.slab,
            i.micro_batch, i.flags};
  }

  // The other ranks that do the instruction of rank `r` together with it.
  std::vector<size_t> PartnersOf(size_t r, const Instruction& i,
                                 const Collectives& collectives) const {
    if (IsTransfer(i)) {
      return {r / stages_ * stages_ + PartnerOf(*ranks_[r].rank.program, i)};
    }
    std::vector<size_t> partners;
    for (size_t other = 0; other < ranks_.size(); ++other) {
      if (other == r) continue;
      const bool within = IsVisit(i) || i.op == Op::kUpdate;
      const bool meets = within ? MeetsInVisit(r, other, i)
                                : MeetsIn(r, other, i, collectives);
      if (meets) partners.push_back(other);
    }
    return partners;
  }
  // Of a collective.
  bool MeetsIn(size_t r, size_t other, const Instruction& i,
               const Collectives& collectives) const {
    const Program& program = *ranks_[r].rank.program;
    const int32_t stage = ranks_[other].rank.program->stage;
    if (!collectives.IsOf(stage, i)) return false;
    if (i.slab < 0) return true;
    const ProgramShape& shape = program.shape;
    const int here = PlaceOf(r), there = PlaceOf(other);
    const auto data = [&](int place) {
      return place / shape.tensor / shape.context;
    };
    const auto piece = [&](int place) {
      return place % shape.tensor * PiecesOf(shape, i.slab) / shape.tensor;
    };
    const bool by_data = program.kind == PassKind::kProbe &&
                         (i.op == Op::kReduce || i.op == Op::kProbe);
    if (by_data && data(here) != data(there)) {
      return false;
    }
    return piece(here) == piece(there);
  }
  bool MeetsInVisit(size_t r, size_t other, const Instruction& i) const {
    const Program& program = *ranks_[r].rank.program;
    if (ranks_[other].rank.program->stage != program.stage) return false;
    const int here = PlaceOf(r), there = PlaceOf(other);
    const bool tensor = ExchangesOver(program, i, Axis::kTensor);
    const bool context = ExchangesOver(program, i, Axis::kContext);
    if (tensor && AreBeside(program.shape, here, there, Axis::kTensor)) {
      return true;
    }
    if (!context) return false;
    if (AreBeside(program.shape, here, there, Axis::kContext)) return true;
    // By one that both meet.
    const int group = program.shape.tensor * program.shape.context;
    return tensor && here / group == there / group;
  }
  // In its stage.
  int PlaceOf(size_t r) const { return static_cast<int>(r / stages_); }
  bool MeetsOthers(const Program& program, const Instruction& i,
                   const Collectives& collectives) const {
    if (IsTransfer(i) || collectives.IsOf(program.stage, i)) return true;
    return ranks_.size() > stages_ &&
           (ExchangesOver(program, i, Axis::kTensor) ||
            ExchangesOver(program, i, Axis::kContext));
  }

  // A slab may be fetched several times in a step: those that are alike meet in
  // their order, which CheckMeetings has found to be one in each lane.
  void FindMeetings() {
    const Collectives collectives(ranks_.front().rank.program->shape);
    std::vector<std::map<Key, std::vector<int32_t>>> alike(ranks_.size());
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const Program& program = *ranks_[r].rank.program;
      for (int32_t i = 0; i < ranks_[r].count; ++i) {
        const Instruction& at = program.instructions[i];
        if (MeetsOthers(program, at, collectives)) {
          alike[r][KeyOf(at)].push_back(i);
        }
      }
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (const auto& [key, indices] : alike[r]) {
        const Instruction& at =
            ranks_[r].rank.program->instructions[indices.front()];
        const Key there = KeyOf(IsTransfer(at) ? OppositeOf(at) : at);
        for (const size_t other : PartnersOf(r, at, collectives)) {
          for (size_t k = 0; k < indices.size(); ++k) {
            ranks_[r].met[indices[k]].push_back(
                {static_cast<int>(other), alike[other].at(there).at(k)});
          }
        }
      }
    }
  }

  // Completes the next instruction of a lane, with all that it meets, where
  // they are ready.
  bool CompleteHead(int rank, int lane) {
    Progress& own = ranks_[rank];
    const int32_t head = own.Head(lane);
    if (head < 0 || !own.IsReady(head)) return false;
    const int32_t step = head / own.count;
    const auto position = [&](const Place& place) {
      return step * ranks_[place.rank].count + place.index;
    };
    const std::vector<Place>& met = own.met[head % own.count];
    for (const Place& place : met) {
      if (!ranks_[place.rank].IsReady(position(place))) return false;
    }
    Interval interval{own.ReadyAt(head), 0};
    double cost = CostOf(own, head);
    for (const Place& place : met) {
      const Progress& other = ranks_[place.rank];
      interval.begin = std::max(interval.begin, other.ReadyAt(position(place)));
      cost = std::max(cost, CostOf(other, position(place)));
    }
    interval.end = interval.begin + cost;
    own.Complete(head, interval);
    for (const Place& place : met) {
      ranks_[place.rank].Complete(position(place), interval);
    }
    return true;
  }

  double CostOf(const Progress& rank, int32_t position) const {
    if (costs_ == nullptr) return 0;
    return costs_(*rank.rank.program, position % rank.count);
  }

  // Of what `waits`, in a rank that is stuck: the instruction that must come
  // first and waits for other ranks alone.
  Waiting FirstOf(Waiting waits) const {
    const Progress& own = ranks_[waits.rank];
    while (!own.IsReady(waits.position)) {
      waits.position = own.Before(waits.position);
    }
    return waits;
  }
  // Of such an instruction: that of another rank for which it waits.
  Waiting NextOf(const Waiting& waits) const {
    const Progress& own = ranks_[waits.rank];
    for (const Place& place : own.met[waits.position % own.count]) {
      const Progress& other = ranks_[place.rank];
      const int32_t at = waits.position / own.count * other.count + place.index;
      if (!other.IsReady(at)) return FirstOf({place.rank, at});
    }
    DELINK_CHECK(false) << "everybody is ready for it";
    return waits;
  }

  // Who waits for each other in turn.
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
    const Progress& own = ranks_[waits.rank];
    return delink::NameOf(own.rank, waits.position % own.count);
  }

  const Costs& costs_;
  const size_t stages_;
  std::vector<Progress> ranks_;  // by column, stage
};

}  // namespace

absl::StatusOr<std::vector<std::vector<Interval>>> ExecuteTogether(
    const std::vector<Column>& columns, const Costs& costs) {
  JointExecution execution(columns, costs);
  DELINK_RETURN_IF_ERROR(execution.Run());
  return execution.FirstStep();
}

}  // namespace delink
