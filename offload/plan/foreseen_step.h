// Predicts how long a step takes at the rates of a machine, and what the lanes
// of each rank do meanwhile. It uses the joint execution that validates the
// programs; each instruction takes the time of its FLOPs or bytes.
//
// Communication between ranks takes no time here, because no network rate is
// known. `delink plan --trace` uses the times measured in a trace instead.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/param_store.h"
#include "framework/step/plan/measure.h"
#include "framework/step/plan/memory.h"
#include "framework/step/program/dependencies.h"
#include "framework/step/program/instruction.h"
#include "framework/step/time/lane_use.h"
#include "offload/plan/bounds.h"
#include "offload/rates/kernel_prices.h"

namespace delink {

// A rank of a stage of the pipeline; nothing is owned.
struct RankOfStep {
  const Program& program;  // of a step
  const ParamStore& store;
  const StepMemory& memory;
  const std::vector<LayerPlan>& layers;
  offload::StepRates rates;  // the rank's part of its machine's
  // Both optional. With prices, visits, squares and AdamW's updates on the
  // device are priced call by call; `analysis` says which gradients they add
  // to.
  const offload::KernelPrices* prices = nullptr;
  const Analysis* analysis = nullptr;
};

// Seconds by instruction of the program: visits by their kernel calls or else
// their FLOPs, recomputation included; copies between host and device by their
// bytes; updates and squares by the bytes that they read and write, at the rate
// of the memory that they run in. Instructions without a rate take no time.
std::vector<offload::WorkSeconds> SecondsOf(const RankOfStep& rank);

struct TimedRank {
  int rank = 0;
  const Program* program = nullptr;
  std::vector<offload::WorkSeconds> seconds;  // by instruction
};

struct ForeseenStep {
  double seconds = 0;  // from a step's end to the next's, in a long run
  // By stage of the pipeline.
  std::vector<RankLanes> ranks;

  // Seconds for which the lane is busy, on the rank where that is longest. For
  // a lane of the bus, the time of both lanes in its direction.
  double Busy(Lane lane) const;
  // Which lane is busy longest: "compute", "the bus to the device", "the bus to
  // the host", "the device's updates" (late ones), "the host's updates".
  std::string BoundBy() const;
};

// `stages`: one rank of each pipeline stage, which stands for all of the stage.
// `columns`: of the pictures of lanes. InvalidArgument: the programs do not end
// (validator.h).
absl::StatusOr<ForeseenStep> Foresee(const std::vector<TimedRank>& stages,
                                     int columns);

}  // namespace delink
