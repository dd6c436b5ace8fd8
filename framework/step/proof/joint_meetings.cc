#include "framework/step/proof/joint_meetings.h"

#include <map>
#include <tuple>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/step/proof/visit_meetings.h"

namespace delink {
namespace {

// Equal on every rank that meets in an instruction.
using Key = std::tuple<Op, Lane, int32_t, int32_t, int32_t, uint8_t>;
Key KeyOf(Instruction i) {
  // The two ends of a transfer are in lanes of their own.
  if (IsTransfer(i)) i.lane = Lane::kCompute;
  if (i.op == Op::kRecv) i = OppositeOf(i);
  return {i.op, i.lane, i.layer, i.slab, i.micro_batch, i.flags};
}

// Equal on the ranks that meet in instructions with the same key.
using Group = std::tuple<int, int, int>;

class Finder {
 public:
  Finder(std::vector<RankProgress>& ranks, size_t stages)
      : ranks_(ranks),
        stages_(static_cast<int>(stages)),
        shape_(ranks.front().rank.program->shape),
        mesh_(StageMesh(shape_)),
        collectives_(shape_) {}

  // A slab may be fetched several times in a step: those that are alike meet in
  // their order, which CheckMeetings has found to be one in each lane.
  std::vector<Meeting> Find() {
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
      const Program& program = *ranks_[r].rank.program;
      std::map<int, Group> groups;  // by kind
      for (const Alike& alike : AlikeOf(program)) {
        const Instruction& at = program.instructions[alike.indices.front()];
        auto [group, fresh] = groups.try_emplace(alike.groups);
        if (fresh) group->second = GroupOf(r, at);
        Add(r, alike, group->second);
      }
    }
    for (size_t m = 0; m < meetings_.size(); ++m) {
      const std::vector<Partner>& members = meetings_[m].members;
      if (members.size() == 1) continue;
      for (const Partner& of : members) {
        ranks_[of.rank].met[of.index] = static_cast<int32_t>(m);
      }
    }
    return std::move(meetings_);
  }

 private:
  // Instructions of a program with one key, which have one kind of groups.
  struct Alike {
    int key = 0, groups = 0;
    std::vector<int32_t> indices;
  };

  const std::vector<Alike>& AlikeOf(const Program& program) {
    const auto [at, fresh] = alike_.try_emplace(&program);
    if (!fresh) return at->second;
    std::map<int, size_t> known;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& one = program.instructions[i];
      if (!MeetsOthers(program, one)) continue;
      const int key = NumberOf(keys_, KeyOf(one));
      const auto [place, added] = known.try_emplace(key, at->second.size());
      if (added) at->second.push_back({key, KindOfGroups(program, one), {}});
      At(at->second, place->second).indices.push_back(static_cast<int32_t>(i));
    }
    return at->second;
  }

  bool MeetsOthers(const Program& program, const Instruction& i) const {
    if (IsTransfer(i) || collectives_.IsOf(program.stage, i)) return true;
    return static_cast<int>(ranks_.size()) > stages_ &&
           AxesWithin(program, i) != Axes();
  }

  // One number for instructions that have the same groups.
  int KindOfGroups(const Program& program, const Instruction& i) {
    if (!IsWithin(i)) {
      return NumberOf(kinds_, {i.op, i.slab, i.layer, 0});
    }
    const Axes within = AxesWithin(program, i);
    int over = 1;
    for (const Axis axis : kVisitAxes) over = 2 * over + within.has(axis);
    return NumberOf(kinds_, {Op::kForward, -1, -1, over});
  }
  static bool IsWithin(const Instruction& i) {
    return IsVisit(i) || i.op == Op::kUpdate;
  }

  Group GroupOf(int r, const Instruction& i) const {
    const Program& program = *ranks_[r].rank.program;
    const int column = r / stages_;  // and the place in its stage
    if (IsTransfer(i)) return {column, -1, -1};
    if (IsWithin(i)) {
      const Axes within = AxesWithin(program, i);
      return {program.stage, GroupWithin(shape_, column, within), -1};
    }
    if (i.slab < 0) return {-1, -1, -1};
    const AxisCut cut = CutOf(shape_, i.slab);
    const bool by_visit = program.kind == PassKind::kProbe &&
                          (i.op == Op::kReduce || i.op == Op::kProbe);
    return {by_visit ? column / mesh_.PlacesOfVisit(cut) : -1,
            mesh_.PieceAt(column, cut), -1};
  }

  void Add(int r, const Alike& alike, const Group& group) {
    const auto [first, fresh] =
        first_.try_emplace({alike.key, group}, meetings_.size());
    if (fresh) meetings_.resize(meetings_.size() + alike.indices.size());
    for (size_t k = 0; k < alike.indices.size(); ++k) {
      At(meetings_, first->second + k).members.push_back({r, alike.indices[k]});
    }
  }

  template <typename Value>
  static int NumberOf(std::map<Value, int>& numbers, const Value& value) {
    return numbers.try_emplace(value, static_cast<int>(numbers.size()))
        .first->second;
  }

  std::vector<RankProgress>& ranks_;
  const int stages_;
  const ProgramShape& shape_;
  const Mesh mesh_;
  const Collectives collectives_;
  std::map<Key, int> keys_;
  std::map<std::tuple<Op, int32_t, int32_t, int>, int> kinds_;
  std::map<const Program*, std::vector<Alike>> alike_;
  std::map<std::pair<int, Group>, size_t> first_;  // of their meetings
  std::vector<Meeting> meetings_;
};

}  // namespace

std::vector<Meeting> FindMeetings(std::vector<RankProgress>& ranks,
                                  size_t stages) {
  return Finder(ranks, stages).Find();
}

}  // namespace delink
