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

// An instruction of one of the executed ranks.
struct Partner {
  int rank = 0;
  int32_t index = 0;
};

// Positions count the instructions of the first step, then of the second.
struct RankProgress {
  explicit RankProgress(const RankProgram& of);

  // The next position of a lane, -1 at the end of the second step.
  int32_t Head(int lane) const;
  // Whether it is the next of its lane, and its dependencies are complete.
  bool IsReady(int32_t position) const;
  // If it is not ready: what it waits for on its own rank.
  int32_t Before(int32_t position) const;
  // If it is ready: since when.
  double ReadyAt(int32_t position) const;
  void Complete(int32_t position, const Interval& interval);

  RankProgram rank;
  int32_t count;
  std::array<std::vector<int32_t>, kLanes> lanes;
  Analysis analysis;
  std::vector<std::vector<Partner>> met;  // by instruction, on other ranks
  std::vector<bool> done;
  std::vector<Interval> intervals;
  std::array<size_t, kLanes> next{};
  std::array<double, kLanes> lane_ends{};

 private:
  int32_t PositionOf(const Dependency& d, int32_t waits) const;
};

}  // namespace delink
