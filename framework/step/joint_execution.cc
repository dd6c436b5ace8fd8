#include "framework/step/joint_execution.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/step/dependencies.h"

namespace delink {
namespace {

std::string Name(const RankProgram& rank, int32_t index) {
  return absl::StrCat("rank ", rank.rank, ": instruction ", index, ", ",
                      ToString(rank.program->instructions[index]));
}

bool IsTransfer(const Instruction& i) {
  return i.op == Op::kSend || i.op == Op::kRecv;
}

// The other end of a transfer.
Instruction Opposite(Instruction i) {
  i.op = i.op == Op::kSend ? Op::kRecv : Op::kSend;
  return i;
}

int32_t PartnerOf(const Program& program, const Instruction& transfer) {
  const int32_t before = StageOf(program.shape, transfer.layer - 1);
  return before == program.stage ? StageOf(program.shape, transfer.layer)
                                 : before;
}

// By slab the stages that use it.
std::vector<std::vector<bool>> StagesOfSlabs(const ProgramShape& shape) {
  std::vector<std::vector<bool>> stages(shape.slabs,
                                        std::vector<bool>(shape.stages));
  for (int32_t layer = 0; layer < shape.layers; ++layer) {
    for (const int32_t slab : shape.slabs_of_layer[layer]) {
      stages[slab][StageOf(shape, layer)] = true;
    }
  }
  return stages;
}

// Whether all ranks of `stage` do the instruction together with others.
class Collectives {
 public:
  explicit Collectives(const ProgramShape& shape)
      : shape_(shape), stages_(StagesOfSlabs(shape)) {}
  bool IsOf(int32_t stage, const Instruction& i) const {
    if (i.op == Op::kNorm || i.op == Op::kSum) return true;
    const bool exchanges =
        i.op == Op::kReduce || (i.op == Op::kFetch && shape_.gathers[i.slab]);
    return exchanges && stages_[i.slab][stage];
  }

 private:
  const ProgramShape& shape_;
  const std::vector<std::vector<bool>> stages_;
};

template <typename Predicate>
std::vector<int32_t> Where(const Program& program, const Predicate& matches) {
  std::vector<int32_t> found;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (matches(program.instructions[i])) {
      found.push_back(static_cast<int32_t>(i));
    }
  }
  return found;
}

// The collectives of a lane that are of both.
absl::Status CompareLane(const Collectives& collectives,
                         const RankProgram& first, const RankProgram& other,
                         Lane lane) {
  const auto of = [&](const RankProgram& rank, const RankProgram& with) {
    return Where(*rank.program, [&](const Instruction& i) {
      return i.lane == lane && collectives.IsOf(rank.program->stage, i) &&
             collectives.IsOf(with.program->stage, i);
    });
  };
  const std::vector<int32_t> expected = of(first, other);
  const std::vector<int32_t> found = of(other, first);
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

absl::Status CompareLanes(const Collectives& collectives,
                          const RankProgram& first, const RankProgram& other) {
  for (int lane = 0; lane < kLanes; ++lane) {
    DELINK_RETURN_IF_ERROR(
        CompareLane(collectives, first, other, static_cast<Lane>(lane)));
  }
  return absl::OkStatus();
}

// What `from` sends to `to`, gradients or inputs.
absl::Status CompareTransfers(const RankProgram& from, const RankProgram& to,
                              uint8_t flags) {
  const auto of = [&](const RankProgram& rank, Op op, const RankProgram& with) {
    return Where(*rank.program, [&](const Instruction& i) {
      return i.op == op && i.flags == flags &&
             PartnerOf(*rank.program, i) == with.program->stage;
    });
  };
  const std::vector<int32_t> sent = of(from, Op::kSend, to);
  const std::vector<int32_t> received = of(to, Op::kRecv, from);
  for (size_t k = 0; k < std::max(sent.size(), received.size()); ++k) {
    if (k >= sent.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          Name(to, received[k]), ": rank ", from.rank, " has no ",
          ToString(Opposite(to.program->instructions[received[k]]))));
    }
    const Instruction expected = Opposite(from.program->instructions[sent[k]]);
    std::string wrong = absl::StrCat(" has no ", ToString(expected));
    if (k < received.size()) {
      const Instruction& there = to.program->instructions[received[k]];
      if (ToString(there) == ToString(expected)) continue;
      wrong = absl::StrCat(" receives ", ToString(there),
                           " there; what two ranks exchange has one order on "
                           "both");
    }
    return absl::InvalidArgumentError(
        absl::StrCat(Name(from, sent[k]), ": rank ", to.rank, wrong));
  }
  return absl::OkStatus();
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

// An instruction of one of the executed ranks.
struct Place {
  int rank = 0;
  int32_t index = 0;
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
    for (const Progress& rank : ranks_) {
      for (int lane = 0; lane < kLanes; ++lane) {
        if (rank.Head(lane) >= 0) return Deadlock();
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
  static std::tuple<Op, int32_t, int32_t, int32_t, uint8_t> KeyOf(
      const Instruction& i) {
    return {i.op, i.layer, i.slab, i.micro_batch, i.flags};
  }

  void FindMeetings() {
    std::vector<std::map<decltype(KeyOf({})), int32_t>> index;
    for (const Progress& rank : ranks_) {
      index.emplace_back();
      for (int32_t i = 0; i < rank.count; ++i) {
        index.back()[KeyOf(rank.rank.program->instructions[i])] = i;
      }
    }
    const Collectives collectives(ranks_.front().rank.program->shape);
    for (size_t r = 0; r < ranks_.size(); ++r) {
      Progress& rank = ranks_[r];
      const Program& program = *rank.rank.program;
      for (int32_t i = 0; i < rank.count; ++i) {
        const Instruction& at = program.instructions[i];
        if (IsTransfer(at)) {
          const size_t other = r / stages_ * stages_ + PartnerOf(program, at);
          rank.met[i] = {
              {static_cast<int>(other), index[other].at(KeyOf(Opposite(at)))}};
        } else if (collectives.IsOf(program.stage, at)) {
          for (size_t other = 0; other < ranks_.size(); ++other) {
            const int32_t stage = ranks_[other].rank.program->stage;
            if (other == r || !collectives.IsOf(stage, at)) continue;
            rank.met[i].push_back(
                {static_cast<int>(other), index[other].at(KeyOf(at))});
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

  // Somebody is ready for a meeting: the first instruction of a program that
  // is left has nothing else to wait for.
  absl::Status Deadlock() const {
    for (int lane = 0; lane < kLanes; ++lane) {
      for (const Progress& waiting : ranks_) {
        const int32_t head = waiting.Head(lane);
        if (head < 0 || !waiting.IsReady(head)) continue;
        for (const Place& place : waiting.met[head % waiting.count]) {
          const Progress& late = ranks_[place.rank];
          if (late.IsReady(head / waiting.count * late.count + place.index)) {
            continue;
          }
          const bool transfer = IsTransfer(
              waiting.rank.program->instructions[head % waiting.count]);
          return absl::InvalidArgumentError(
              absl::StrCat(Name(waiting.rank, head % waiting.count),
                           ": waits for ever for rank ", late.rank.rank,
                           ", which must wait for another ",
                           transfer ? "exchange with" : "collective of",
                           " rank ", waiting.rank.rank,
                           " first: ", transfer ? "exchanges" : "collectives",
                           " of several lanes deadlock by their order"));
        }
      }
    }
    return absl::InternalError("step: a valid program does not end");
  }

  const Costs& costs_;
  const size_t stages_;
  std::vector<Progress> ranks_;  // by column, stage
};

}  // namespace

absl::Status CheckMeetings(const std::vector<Column>& columns) {
  const Column& first = columns.front();
  const Collectives collectives(first.front().program->shape);
  for (const Column& column : columns) {
    for (size_t stage = 0; stage < column.size(); ++stage) {
      // In a column against the stages before, then against the first column's.
      for (size_t before = 0; before < stage; ++before) {
        DELINK_RETURN_IF_ERROR(
            CompareLanes(collectives, column[before], column[stage]));
      }
      if (&column != &first) {
        DELINK_RETURN_IF_ERROR(
            CompareLanes(collectives, first[stage], column[stage]));
      }
    }
    for (const RankProgram& from : column) {
      for (const RankProgram& to : column) {
        if (&from == &to) continue;
        for (const uint8_t flags : {uint8_t{0}, uint8_t{kOfGradient}}) {
          DELINK_RETURN_IF_ERROR(CompareTransfers(from, to, flags));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<Interval>>> ExecuteTogether(
    const std::vector<Column>& columns, const Costs& costs) {
  JointExecution execution(columns, costs);
  DELINK_RETURN_IF_ERROR(execution.Run());
  return execution.FirstStep();
}

}  // namespace delink
