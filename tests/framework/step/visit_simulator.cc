#include "tests/framework/step/visit_simulator.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "framework/step/program/dependencies.h"
#include "tests/framework/step/cells.h"

namespace delink::step_test {
namespace {

constexpr int32_t kRuns = 2;

// A communicator: what its members have posted, each in its order.
struct Channel {
  std::vector<int> members;
  std::map<int, std::vector<std::string>> posted;  // by rank
};

// A thing that an instruction does with others: where, and what it says.
struct Meeting {
  Channel* channel = nullptr;
  std::string text;
};

struct LaneOfRank {
  std::vector<int32_t> order;
  size_t next = 0;      // of order, over all runs
  size_t meeting = 0;   // of the instruction
  bool begun = false;   // it is
  bool posted = false;  // and its meeting, too
  size_t number = 0;    // which of the rank's in that channel
};

class Ranks {
 public:
  Ranks(const std::vector<Program>& programs, Dice& dice)
      : programs_(programs), shape_(programs[0].shape), dice_(dice) {
    for (const Program& program : programs) {
      analyses_.push_back(AnalyzeProgram(program));
      done_.emplace_back(kRuns * program.instructions.size(), false);
      auto& lanes = lanes_.emplace_back();
      for (size_t i = 0; i < program.instructions.size(); ++i) {
        lanes[static_cast<size_t>(program.instructions[i].lane)]
            .order.push_back(static_cast<int32_t>(i));
      }
    }
  }

  std::string Run() {
    std::vector<std::pair<int, int>> lanes;
    for (int rank = 0; rank < Count(); ++rank) {
      for (int lane = 0; lane < kLanes; ++lane) {
        if (!Of(rank, lane).order.empty()) lanes.emplace_back(rank, lane);
      }
    }
    while (true) {
      bool moved = false, through = true;
      for (size_t i = lanes.size(); i > 1; --i) {
        std::swap(lanes[i - 1], lanes[dice_.Below(static_cast<int32_t>(i))]);
      }
      for (const auto& [rank, lane] : lanes) {
        for (int32_t n = dice_.Between(1, 4); n > 0 && Advance(rank, lane);
             --n) {
          moved = true;
        }
        if (!error_.empty()) return error_;
        through = through && IsThrough(rank, lane);
      }
      if (through) return "";
      if (!moved) return "lanes wait for each other";
    }
  }

 private:
  int Count() const { return static_cast<int>(programs_.size()); }
  LaneOfRank& Of(int rank, int lane) {
    return lanes_[static_cast<size_t>(rank)][static_cast<size_t>(lane)];
  }
  const Program& ProgramOf(int rank) const {
    return programs_[static_cast<size_t>(rank)];
  }
  bool IsThrough(int rank, int lane) {
    const LaneOfRank& at = Of(rank, lane);
    return at.next == kRuns * at.order.size();
  }

  // Places of a rank.
  int Stage(int rank) const { return rank / shape_.ranks; }
  int Tensor(int rank) const { return rank % shape_.ranks % shape_.tensor; }
  int Context(int rank) const {
    return rank % shape_.ranks / shape_.tensor % shape_.context;
  }
  int Data(int rank) const {
    return rank % shape_.ranks / (shape_.tensor * shape_.context);
  }
  // The number of a rank's group of experts.
  int Expert(int rank) const { return rank % shape_.ranks / shape_.expert; }
  bool UsesSlab(int rank, int32_t slab) const {
    for (int32_t l = 0; l < shape_.layers; ++l) {
      const auto& slabs = shape_.slabs_of_layer[static_cast<size_t>(l)];
      if (StageOf(shape_, l) != Stage(rank)) continue;
      if (std::find(slabs.begin(), slabs.end(), slab) != slabs.end()) {
        return true;
      }
    }
    return false;
  }

  template <typename Same>
  std::vector<int> Those(const Same& same) const {
    std::vector<int> members;
    for (int rank = 0; rank < Count(); ++rank) {
      if (same(rank)) members.push_back(rank);
    }
    return members;
  }
  // Whether two ranks work on one micro-batch, or on several whose tokens meet
  // at experts: those that steps within a data place and within a group of
  // experts lead to.
  bool GiveOneMicroBatch(int r, int with, bool experts) const {
    if (!experts) return Data(r) == Data(with);
    std::set<int> reached = {Data(with)};
    for (size_t before = 0; before < reached.size();) {
      before = reached.size();
      for (int a = 0; a < shape_.ranks; ++a) {
        for (int b = 0; b < shape_.ranks; ++b) {
          if (Expert(a) == Expert(b) && reached.contains(Data(a))) {
            reached.insert(Data(b));
          }
        }
      }
    }
    return reached.contains(Data(r));
  }
  // Whether rank `r` does what the other one does with a slab together with it.
  bool Shares(int r, int with, const Instruction& i) const {
    const AxisCut cut = shape_.slab_cuts.empty()
                            ? AxisCut{}
                            : shape_.slab_cuts[static_cast<size_t>(i.slab)];
    const bool experts = cut.axis == Axis::kExpert;
    const auto piece = [&](int rank) {
      return experts ? rank % shape_.ranks % shape_.expert * cut.pieces /
                           shape_.expert
                     : Tensor(rank) * cut.pieces / shape_.tensor;
    };
    if (!UsesSlab(r, i.slab) || piece(r) != piece(with)) return false;
    if (ProgramOf(r).kind == PassKind::kProbe && i.op != Op::kFetch &&
        !GiveOneMicroBatch(r, with, experts)) {
      return false;
    }
    return i.op != Op::kProbe || Stage(r) == Stage(with);
  }
  // One for each set of ranks, lane and tag.
  Channel* ChannelOf(std::vector<int> members, int lane, int tag) {
    auto& channel = channels_[{members, lane, tag}];
    if (channel == nullptr) {
      channel = std::make_unique<Channel>();
      channel->members = std::move(members);
    }
    return channel.get();
  }

  std::vector<Phase> Phases(const Program& program,
                            const Instruction& i) const {
    const bool again = (i.flags & kRecompute) != 0;
    std::vector<Phase> phases;
    if (i.op == Op::kForward || i.op == Op::kLoss) {
      const bool keeps = !again && (i.flags & kForwardOnly) == 0;
      phases.push_back(program.kind == PassKind::kEvaluation ? Phase::kEval
                       : keeps                               ? Phase::kRecord
                                                             : Phase::kForward);
    } else if (again) {
      phases.push_back(Phase::kRecord);
    }
    if (HasGradients(i) && i.op != Op::kBackwardWeight) {
      phases.push_back(Phase::kBackward);
    }
    if (i.op == Op::kBackwardInput) phases.push_back(Phase::kBackwardInput);
    if (i.op == Op::kBackwardWeight) phases = {Phase::kBackwardWeight};
    return phases;
  }

  std::vector<Meeting> VisitMeetings(int rank, int lane, const Instruction& i) {
    std::vector<Meeting> meetings;
    std::vector<std::vector<VisitExchange>> lists;
    if (i.op == Op::kUpdate) {
      lists = {shape_.update_exchanges[static_cast<size_t>(i.slab)]};
    } else {
      const auto layer = static_cast<size_t>(i.layer);
      for (const Phase phase : Phases(ProgramOf(rank), i)) {
        lists.push_back(shape_.exchanges[layer][static_cast<size_t>(phase)]);
      }
    }
    for (const std::vector<VisitExchange>& list : lists) {
      for (const VisitExchange& e : list) {
        Channel* const channel = ChannelOf(
            Those([&](int r) {
              if (Stage(r) != Stage(rank)) return false;
              if (e.axis == Axis::kExpert) return Expert(r) == Expert(rank);
              return Data(r) == Data(rank) &&
                     (e.axis == Axis::kTensor ? Context(r) == Context(rank)
                                              : Tensor(r) == Tensor(rank));
            }),
            lane, 1 + static_cast<int>(e.axis));
        meetings.push_back({channel, delink::ToString(e) + " " +
                                         std::to_string(e.bytes) +
                                         delink::ToString(i)});
      }
    }
    return meetings;
  }

  // One list for each instruction, however often it runs.
  const std::vector<Meeting>& MeetingsOf(int rank, int lane, int32_t index) {
    auto& known = meetings_[{rank, index}];
    if (known != nullptr) return *known;
    known = std::make_unique<std::vector<Meeting>>();
    const Instruction& i =
        ProgramOf(rank).instructions[static_cast<size_t>(index)];
    const std::string text = delink::ToString(i);
    if ((IsVisit(i) && !shape_.exchanges.empty()) ||
        (i.op == Op::kUpdate && !shape_.update_exchanges.empty())) {
      *known = VisitMeetings(rank, lane, i);
    } else if (i.op == Op::kNorm || i.op == Op::kSum) {
      *known = {{ChannelOf(Those([](int) { return true; }), lane, 0), text}};
    } else if (i.op == Op::kSend || i.op == Op::kRecv) {
      const int32_t before = StageOf(shape_, i.layer - 1);
      const int32_t other =
          before == Stage(rank) ? StageOf(shape_, i.layer) : before;
      std::vector<int> ends = {rank,
                               rank % shape_.ranks + other * shape_.ranks};
      std::sort(ends.begin(), ends.end());
      const bool gradient = (i.flags & kOfGradient) != 0;
      // What goes one way and what goes the other do not meet.
      const bool up = (i.op == Op::kSend) == (Stage(rank) < other);
      *known = {{ChannelOf(ends, -1, (gradient ? 4 : 8) + (up ? 1 : 2)),
                 text.substr(4)}};
    } else if (i.op == Op::kReduce || i.op == Op::kGather ||
               i.op == Op::kProbe || GathersAt(shape_, i)) {
      *known = {
          {ChannelOf(Those([&](int r) { return Shares(r, rank, i); }), lane, 0),
           text}};
    }
    return *known;
  }

  bool MayBegin(int rank, size_t run, int32_t index) const {
    const size_t count = ProgramOf(rank).instructions.size();
    const auto& waits = analyses_[static_cast<size_t>(rank)]
                            .dependencies[static_cast<size_t>(index)];
    return std::all_of(waits.begin(), waits.end(), [&](const Dependency& d) {
      if (d.previous_step && run == 0) return true;
      const size_t of = d.previous_step ? run - 1 : run;
      return bool{done_[static_cast<size_t>(rank)]
                       [of * count + static_cast<size_t>(d.instruction)]};
    });
  }

  void Post(int rank, const Meeting& meeting, LaneOfRank* at) {
    Channel& channel = *meeting.channel;
    std::vector<std::string>& own = channel.posted[rank];
    at->number = own.size();
    own.push_back(meeting.text);
    at->posted = true;
    for (const auto& [other, posted] : channel.posted) {
      if (posted.size() <= at->number || posted[at->number] == own.back()) {
        continue;
      }
      error_ = "rank " + std::to_string(rank) + " posts " + own.back() +
               " where rank " + std::to_string(other) + " posts " +
               posted[at->number];
    }
  }
  bool AllPosted(const Channel& channel, size_t number) const {
    return std::all_of(
        channel.members.begin(), channel.members.end(), [&](int member) {
          const auto found = channel.posted.find(member);
          return found != channel.posted.end() && found->second.size() > number;
        });
  }

  // Whether anything happened.
  bool Advance(int rank, int lane) {
    LaneOfRank& at = Of(rank, lane);
    if (IsThrough(rank, lane)) return false;
    const size_t run = at.next / at.order.size();
    const int32_t index = at.order[at.next % at.order.size()];
    if (!at.begun) {
      if (!MayBegin(rank, run, index)) return false;
      at.begun = true;
      return true;
    }
    const std::vector<Meeting>& meetings = MeetingsOf(rank, lane, index);
    if (at.meeting < meetings.size()) {
      const Meeting& meeting = meetings[at.meeting];
      if (meeting.channel->members.size() > 1) {
        if (!at.posted) {
          Post(rank, meeting, &at);
          return true;
        }
        if (!AllPosted(*meeting.channel, at.number)) return false;
      }
      at.posted = false;
      ++at.meeting;
      return true;
    }
    const size_t count = ProgramOf(rank).instructions.size();
    done_[static_cast<size_t>(rank)][run * count + static_cast<size_t>(index)] =
        true;
    at.begun = false;
    at.meeting = 0;
    ++at.next;
    return true;
  }

  const std::vector<Program>& programs_;
  const ProgramShape& shape_;
  Dice& dice_;
  std::vector<Analysis> analyses_;
  std::vector<std::vector<bool>> done_;
  std::vector<std::array<LaneOfRank, kLanes>> lanes_;
  std::map<std::tuple<std::vector<int>, int, int>, std::unique_ptr<Channel>>
      channels_;
  std::map<std::pair<int, int32_t>, std::unique_ptr<std::vector<Meeting>>>
      meetings_;
  std::string error_;
};

}  // namespace

std::string SimulateRanks(const std::vector<Program>& ranks, Dice& dice) {
  return Ranks(ranks, dice).Run();
}

}  // namespace delink::step_test
