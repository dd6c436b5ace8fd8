// How far a rank of a joint execution has come through two steps. Part of
// ExecuteTogether.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "framework/step/program/dependencies.h"
#include "framework/step/program/instruction.h"
#include "framework/step/proof/joint_execution.h"
#include "framework/step/proof/meetings.h"

namespace delink {

// What follows from a program. Ranks with the same program share it.
struct ProgramFacts {
  explicit ProgramFacts(const Program& program);

  std::array<std::vector<int32_t>, kLanes> lanes;  // instructions, in order
  Analysis analysis;
};

// Positions count the instructions of the first step, then of the second.
struct RankProgress {
  RankProgress(const RankProgram& of, const ProgramFacts& shared);

  // The next position of a lane, -1 at the end of the second step.
  int32_t Head(int lane) const;
  // Whether it is the next of its lane, and its dependencies are complete.
  bool IsReady(int32_t position) const;
  // If it is not ready: what it waits for on its own rank.
  int32_t Before(int32_t position) const;
  // If it is ready: since when, and the last that it waited for, -1 if nothing.
  struct Ready {
    double time = 0;
    int32_t after = -1;
  };
  Ready ReadyAt(int32_t position) const;
  void Complete(int32_t position, const Interval& interval);

  RankProgram rank;
  const ProgramFacts* facts;  // not owned
  int32_t count;
  std::vector<int32_t> met;  // by instruction: the number of its meeting, or -1
  std::vector<bool> done;
  std::vector<Interval> intervals;
  std::array<size_t, kLanes> next{};
  std::array<int32_t, kLanes> last;  // completed, by lane; -1: none

 private:
  int32_t PositionOf(const Dependency& d, int32_t waits) const;
};

}  // namespace delink
