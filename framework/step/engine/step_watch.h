// Lets the code around a run watch its steps, and send a number from every rank
// to all ranks without an exchange of its own.
#pragma once

#include <cstdint>
#include <string_view>

#include "framework/step/program/instruction.h"

namespace delink {

class StepWatch {
 public:
  StepWatch() = default;
  StepWatch(const StepWatch&) = delete;
  StepWatch& operator=(const StepWatch&) = delete;
  virtual ~StepWatch() = default;

  // A lane begins `what` ("B(3,a)", "saving a checkpoint") and does it until
  // the next call. Called by one thread for each lane, and often: it may take a
  // microsecond. Without a pipeline all ranks make the same calls for the
  // compute lane.
  virtual void Begin(Lane lane, int64_t step, std::string_view what) = 0;
  // The compute lane waits for another lane, or for what it has posted itself
  // ("Recv(4,a) of blocks/3"), mostly for other ranks; empty: the wait has
  // ended. Called by that lane's thread when a wait begins and when it ends.
  virtual void Wait(int64_t /*step*/, std::string_view /*what*/) {}

  // This rank's vote, asked for once in every step, before its gradient norm.
  // The sum over all ranks is in the step's result, the same on every rank.
  // Whole numbers whose sum a double holds.
  virtual double Vote() = 0;
};

}  // namespace delink
