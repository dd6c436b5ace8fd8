#include "framework/step/time/lane_use.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>

#include "framework/base/at.h"

namespace delink {
namespace {

struct Span {
  double begin = 0, end = 0;  // from the step's begin on
  char letter = '.';
};
using Spans = std::vector<Span>;  // of a lane, in its order

char LetterOf(const Instruction& at) {
  if (at.lane == Lane::kGather) return 'G';
  if (!IsOverBus(at.lane)) return ToString(at).at(0);
  if (!IsOfPlanes(at)) return 'a';
  switch (PlaneSetOf(at)) {
    case PlaneSet::kWeight:
      return 'w';
    case PlaneSet::kGradient:
      return 'g';
    case PlaneSet::kUpdated:
      return 'u';
    case PlaneSet::kState:
      break;
  }
  return 's';
}

// All steps are alike, so work that begins before this step or ends after it is
// moved into it by whole steps.
std::array<Spans, kLanes> SpansOf(const Program& program, const StepTime& time,
                                  size_t rank) {
  std::array<Spans, kLanes> lanes;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& at = program.instructions[i];
    const Interval& of = At(At(time.intervals(), rank), i);
    const double turns = std::floor((of.begin - time.begin) / time.seconds);
    const double shift = time.begin + turns * time.seconds;
    double begin = of.begin - shift, end = of.end - shift;
    for (; begin < end; begin = 0, end -= time.seconds) {
      At(lanes, at.lane)
          .push_back({begin, std::min(end, time.seconds), LetterOf(at)});
    }
  }
  for (Spans& spans : lanes) {
    std::ranges::sort(spans, {}, [](const Span& span) { return span.begin; });
  }
  return lanes;
}

double SecondsOf(const Spans& spans) {
  double sum = 0;
  for (const Span& span : spans) sum += span.end - span.begin;
  return sum;
}

double Overlap(const Spans& a, const Spans& b) {
  double sum = 0;
  size_t at = 0;
  for (const Span& span : a) {
    while (at < b.size() && b[at].end <= span.begin) ++at;
    for (size_t k = at; k < b.size() && b[k].begin < span.end; ++k) {
      sum += std::min(span.end, b[k].end) - std::max(span.begin, b[k].begin);
    }
  }
  return sum;
}

std::string Draw(const Spans& spans, double seconds, int columns) {
  const double width = seconds / columns;
  std::vector<std::map<char, double>> shares(static_cast<size_t>(columns));
  for (const Span& span : spans) {
    const auto first = static_cast<int>(span.begin / width);
    for (int c = first; c < columns && c * width < span.end; ++c) {
      At(shares, c)[span.letter] +=
          std::min(span.end, (c + 1) * width) - std::max(span.begin, c * width);
    }
  }
  std::string picture;
  for (std::map<char, double>& of : shares) {
    double idle = width;
    for (const auto& [letter, share] : of) idle -= share;
    of['.'] = idle;
    picture += std::ranges::max_element(of, {}, [](const auto& share) {
                 return share.second;
               })->first;
  }
  return picture;
}

}  // namespace

std::vector<LaneUse> UseOfLanes(const Program& program, const StepTime& time,
                                size_t rank, int columns) {
  const std::array<Spans, kLanes> lanes = SpansOf(program, time, rank);
  std::vector<LaneUse> uses;
  for (int lane = 0; lane < kLanes; ++lane) {
    const Spans& spans = At(lanes, lane);
    if (spans.empty()) continue;
    uses.push_back({.lane = static_cast<Lane>(lane),
                    .busy = SecondsOf(spans),
                    .hidden = Overlap(spans, At(lanes, Lane::kCompute)),
                    .picture = Draw(spans, time.seconds, columns)});
  }
  return uses;
}

}  // namespace delink
