#include "framework/step/proof/rank_progress.h"

#include <algorithm>

#include "framework/base/check.h"

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

}  // namespace

ProgramFacts::ProgramFacts(const Program& program)
    : lanes(SplitLanes(program)), analysis(AnalyzeProgram(program)) {}

RankProgress::RankProgress(const RankProgram& of, const ProgramFacts& shared)
    : rank(of),
      facts(&shared),
      count(static_cast<int32_t>(of.program->instructions.size())),
      met(count, -1),
      done(size_t{2} * count, false),
      intervals(size_t{2} * count) {
  last.fill(-1);
}

int32_t RankProgress::Head(int lane) const {
  const std::vector<int32_t>& order = facts->lanes[lane];
  const size_t at = next[lane];
  if (at >= 2 * order.size()) return -1;
  return at < order.size() ? order[at] : count + order[at - order.size()];
}

bool RankProgress::IsReady(int32_t position) const {
  const Lane lane = rank.program->instructions[position % count].lane;
  if (Head(static_cast<int>(lane)) != position) return false;
  const auto& waits = facts->analysis.dependencies[position % count];
  return std::all_of(waits.begin(), waits.end(), [&](const Dependency& d) {
    const int32_t at = PositionOf(d, position);
    return at < 0 || done[at];
  });
}

int32_t RankProgress::PositionOf(const Dependency& d, int32_t waits) const {
  const int32_t step = waits / count - (d.previous_step ? 1 : 0);
  return step < 0 ? -1 : step * count + d.instruction;
}

int32_t RankProgress::Before(int32_t position) const {
  const Lane lane = rank.program->instructions[position % count].lane;
  const int32_t head = Head(static_cast<int>(lane));
  if (head != position) return head;
  for (const Dependency& d : facts->analysis.dependencies[position % count]) {
    const int32_t at = PositionOf(d, position);
    if (at >= 0 && !done[at]) return at;
  }
  DELINK_CHECK(false) << "it is ready";
  return position;
}

RankProgress::Ready RankProgress::ReadyAt(int32_t position) const {
  const Instruction& at = rank.program->instructions[position % count];
  Ready ready;
  const auto wait = [&](int32_t before) {
    if (before < 0 || intervals[before].end < ready.time) return;
    ready = {intervals[before].end, before};
  };
  wait(last[static_cast<int>(at.lane)]);
  for (const Dependency& d : facts->analysis.dependencies[position % count]) {
    wait(PositionOf(d, position));
  }
  return ready;
}

void RankProgress::Complete(int32_t position, const Interval& interval) {
  const Instruction& at = rank.program->instructions[position % count];
  done[position] = true;
  intervals[position] = interval;
  last[static_cast<int>(at.lane)] = position;
  ++next[static_cast<int>(at.lane)];
}

}  // namespace delink
