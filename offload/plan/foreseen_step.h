// How long a step takes at the rates of a machine, and what the lanes of each
// rank do meanwhile: the joint execution that proves the programs, in which
// every instruction takes what its FLOPs or bytes take.
//
// What ranks exchange takes nothing here, since no rate of a network is known;
// what a trace of a step has measured takes `delink plan --trace`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/param_store.h"
#include "framework/step/instruction.h"
#include "framework/step/lane_use.h"
#include "framework/step/measure.h"
#include "framework/step/memory.h"
#include "offload/plan/bounds.h"

namespace delink {

// A rank of a stage of the pipeline; nothing is owned.
struct RankOfStep {
  const Program& program;  // of a step
  const ParamStore& store;
  const StepMemory& memory;
  const std::vector<LayerPlan>& layers;
  offload::StepRates rates;  // what of its machine's the rank has
};

// Seconds by instruction of the program: visits by their FLOPs, forward again
// where they recompute; copies between homes by their bytes; updates and
// squares by the bytes that they read and write, where they are made. What has
// no rate takes nothing.
std::vector<double> SecondsOf(const RankOfStep& rank);

struct TimedRank {
  int rank = 0;
  const Program* program = nullptr;
  std::vector<double> seconds;  // by instruction
};

struct ForeseenStep {
  double seconds = 0;  // of many, from one's end to the next's
  // By stage of the pipeline.
  std::vector<RankLanes> ranks;

  // Seconds that the lane of a rank takes, of the rank where that is most; of
  // one over the bus all that goes its way, which two lanes share.
  double Busy(Lane lane) const;
  // Which lane takes longest: "compute", "the bus to the device", "the bus to
  // the host", "the device's updates" (late ones), "the host's updates".
  std::string BoundBy() const;
};

// Of one rank of each stage, by stage, which stand for all; pictures have so
// many columns. InvalidArgument where the programs do not end (validator.h).
absl::StatusOr<ForeseenStep> Foresee(const std::vector<TimedRank>& stages,
                                     int columns);

}  // namespace delink
