// Which instructions of all ranks are done together. Part of ExecuteTogether.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "framework/step/proof/rank_progress.h"

namespace delink {

// An instruction of one of the executed ranks.
struct Partner {
  int rank = 0;
  int32_t index = 0;
};

// A position of a rank (rank_progress.h).
struct Waiting {
  int rank = 0;
  int32_t position = 0;
  friend bool operator==(const Waiting&, const Waiting&) = default;
  friend bool operator<(const Waiting& a, const Waiting& b) {
    return std::pair(a.rank, a.position) < std::pair(b.rank, b.position);
  }
};

// Instructions that are done together, in each of two steps.
struct Meeting {
  struct Step {
    int32_t ready = 0;  // members
    double latest = 0;  // since when they are
    Cause cause;        // of the latest
  };
  std::vector<Partner> members;  // by rank
  std::array<Step, 2> steps;
};

// `ranks` by column, stage, of columns that CheckMeetings passes. Sets their
// `met`. Takes time in proportion to the instructions.
std::vector<Meeting> FindMeetings(std::vector<RankProgress>& ranks,
                                  size_t stages);

}  // namespace delink
