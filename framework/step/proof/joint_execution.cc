#include "framework/step/proof/joint_execution.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/step/proof/rank_progress.h"
#include "framework/step/proof/visit_meetings.h"

namespace delink {
namespace {

// Ends of a way over the bus, in place of a rank.
constexpr int kToDevice = -1, kToHost = -2;

// One of both steps, counted on.
struct Waiting {
  int rank = 0;
  int32_t position = 0;
  friend bool operator==(const Waiting&, const Waiting&) = default;
  friend bool operator<(const Waiting& a, const Waiting& b) {
    return std::pair(a.rank, a.position) < std::pair(b.rank, b.position);
  }
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
    for (bool progress = true; progress; progress = CompleteTransfer()) {
      while (CompleteHeads()) {
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

  JointTimes Times() const {
    JointTimes times;
    for (const RankProgress& rank : ranks_) {
      const auto second = rank.intervals.begin() + rank.count;
      times.first.emplace_back(rank.intervals.begin(), second);
      times.second.emplace_back(second, rank.intervals.end());
    }
    return times;
  }

 private:
  // An instruction's key, equal on every rank that meets in it.
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
    const Mesh mesh = StageMesh(shape);
    const AxisCut cut = CutOf(shape, i.slab);
    const bool by_visit = program.kind == PassKind::kProbe &&
                          (i.op == Op::kReduce || i.op == Op::kProbe);
    const int together = mesh.PlacesOfVisit(cut);
    if (by_visit && here / together != there / together) return false;
    return mesh.PieceAt(here, cut) == mesh.PieceAt(there, cut);
  }
  bool MeetsInVisit(size_t r, size_t other, const Instruction& i) const {
    const Program& program = *ranks_[r].rank.program;
    if (ranks_[other].rank.program->stage != program.stage) return false;
    return AreJoined(program.shape, PlaceOf(r), PlaceOf(other),
                     AxesWithin(program, i));
  }
  // Equal for instructions of a rank that have the same partners.
  using Partners = std::tuple<Op, int32_t, int32_t, std::vector<bool>>;
  static Partners KindOfPartners(const Program& program, const Instruction& i) {
    if (!IsVisit(i) && i.op != Op::kUpdate) return {i.op, i.slab, i.layer, {}};
    const Axes within = AxesWithin(program, i);
    std::vector<bool> over;
    for (const Axis axis : kVisitAxes) over.push_back(within.has(axis));
    return {Op::kForward, -1, -1, over};
  }
  // In its stage.
  int PlaceOf(size_t r) const { return static_cast<int>(r / stages_); }
  bool MeetsOthers(const Program& program, const Instruction& i,
                   const Collectives& collectives) const {
    if (IsTransfer(i) || collectives.IsOf(program.stage, i)) return true;
    return ranks_.size() > stages_ && AxesWithin(program, i) != Axes();
  }

  // A slab may be fetched several times in a step: those that are alike meet in
  // their order, which CheckMeetings has found to be one in each lane.
  void FindMeetings() {
    const Collectives collectives(ranks_.front().rank.program->shape);
    std::map<const Program*, std::map<Key, std::vector<int32_t>>> alike;
    for (const RankProgress& rank : ranks_) {
      const Program& program = *rank.rank.program;
      if (!alike.try_emplace(&program).second) continue;
      for (int32_t i = 0; i < rank.count; ++i) {
        const Instruction& at = program.instructions[i];
        if (MeetsOthers(program, at, collectives)) {
          alike[&program][KeyOf(at)].push_back(i);
        }
      }
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const Program& program = *ranks_[r].rank.program;
      std::map<Partners, std::vector<size_t>> partners;
      for (const auto& [key, indices] : alike[&program]) {
        const Instruction& at = program.instructions[indices.front()];
        const Key there = KeyOf(IsTransfer(at) ? OppositeOf(at) : at);
        const auto [with, fresh] =
            partners.try_emplace(KindOfPartners(program, at));
        if (fresh) with->second = PartnersOf(r, at, collectives);
        for (const size_t other : with->second) {
          const std::vector<int32_t>& met =
              alike[ranks_[other].rank.program].at(there);
          for (size_t k = 0; k < indices.size(); ++k) {
            ranks_[r].met[indices[k]].push_back(
                {static_cast<int>(other), met.at(k)});
          }
        }
      }
    }
  }

  // Goes once round the lanes; whether anything was completed.
  bool CompleteHeads() {
    bool progress = false;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      for (int lane = 0; lane < kLanes; ++lane) {
        for (;;) {
          const int32_t head = ranks_[rank].Head(lane);
          if (head < 0 || GoesByLink(rank, head)) break;
          const std::optional<double> begin = ReadyAt(rank, head);
          if (!begin.has_value()) break;
          Complete(rank, head, *begin);
          progress = true;
        }
      }
    }
    return progress;
  }

  // Completes the one that is ready first; false: none is.
  bool CompleteTransfer() {
    if (costs_ == nullptr) return false;
    Waiting first;
    double begin = std::numeric_limits<double>::infinity();
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const int32_t head = ranks_[rank].Head(lane);
        if (head < 0 || !GoesByLink(rank, head)) continue;
        if (At(rank, head).op == Op::kRecv) continue;  // with its kSend
        const std::optional<double> ready = ReadyAt(rank, head);
        if (!ready.has_value() || *ready >= begin) continue;
        first = {rank, head};
        begin = *ready;
      }
    }
    if (begin == std::numeric_limits<double>::infinity()) return false;
    const RankProgress& own = ranks_[first.rank];
    double& free = free_[{first.rank, WayOf(first)}];
    begin = std::max(begin, free);
    free = begin + CostOf(own, first.position).busy;
    Complete(first.rank, first.position, begin);
    return true;
  }

  const Instruction& At(int rank, int32_t position) const {
    const RankProgress& own = ranks_[rank];
    return own.rank.program->instructions[position % own.count];
  }
  bool GoesByLink(int rank, int32_t position) const {
    const Instruction& at = At(rank, position);
    return costs_ != nullptr && (IsTransfer(at) || IsOverBus(at.lane));
  }
  // To another rank, or of the bus.
  int WayOf(const Waiting& at) const {
    const Lane lane = At(at.rank, at.position).lane;
    if (IsOverBus(lane)) return IsToDevice(lane) ? kToDevice : kToHost;
    const RankProgress& own = ranks_[at.rank];
    return own.met[at.position % own.count].front().rank;
  }

  // When the next instruction of a lane can begin with all that it meets; none
  // if one of them is not ready.
  std::optional<double> ReadyAt(int rank, int32_t head) const {
    const RankProgress& own = ranks_[rank];
    if (!own.IsReady(head)) return std::nullopt;
    double begin = own.ReadyAt(head);
    for (const Partner& place : own.met[head % own.count]) {
      const RankProgress& other = ranks_[place.rank];
      const int32_t there = PositionOf(place, head / own.count);
      if (!other.IsReady(there)) return std::nullopt;
      begin = std::max(begin, other.ReadyAt(there));
    }
    return begin;
  }

  void Complete(int rank, int32_t head, double begin) {
    RankProgress& own = ranks_[rank];
    const std::vector<Partner>& met = own.met[head % own.count];
    const int32_t step = head / own.count;
    double time = CostOf(own, head).time;
    for (const Partner& place : met) {
      time = std::max(time,
                      CostOf(ranks_[place.rank], PositionOf(place, step)).time);
    }
    own.Complete(head, {begin, begin + time});
    for (const Partner& place : met) {
      ranks_[place.rank].Complete(PositionOf(place, step),
                                  {begin, begin + time});
    }
  }

  int32_t PositionOf(const Partner& place, int32_t step) const {
    return step * ranks_[place.rank].count + place.index;
  }

  Cost CostOf(const RankProgress& rank, int32_t position) const {
    if (costs_ == nullptr) return {};
    return costs_(rank.rank, position % rank.count);
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
    const RankProgress& own = ranks_[waits.rank];
    for (const Partner& place : own.met[waits.position % own.count]) {
      const RankProgress& other = ranks_[place.rank];
      const int32_t at = PositionOf(place, waits.position / own.count);
      if (!other.IsReady(at)) return FirstOf({place.rank, at});
    }
    DELINK_CHECK(false) << "everybody is ready for it";
    return waits;
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
  const size_t stages_;
  std::vector<RankProgress> ranks_;  // by column, stage
  // By way, from one of these to another or WayOf its bus: when it is free.
  std::map<std::pair<int, int>, double> free_;
};

}  // namespace

absl::StatusOr<JointTimes> ExecuteTogether(const std::vector<Column>& columns,
                                           const Costs& costs) {
  JointExecution execution(columns, costs);
  DELINK_RETURN_IF_ERROR(execution.Run());
  return execution.Times();
}

}  // namespace delink
