// Private to the engine: its data for each visit and each step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "framework/autograd/tape.h"
#include "framework/step/engine/engine.h"

namespace delink {

// One (layer, micro-batch): the tape that forward records and backward replays.
struct Engine::Visit {
  Visit(const VisitPlan& plan, const Tape::Env& env)
      : memory(plan), tape(env, memory) {}
  // Runs a layer that is no epilogue; `out` as in Tape::Finish.
  void Run(Phase phase, const VisitInputs& inputs, Module& layer,
           const Tensor& in, const Tensor& out);
  PlannedMemory memory;
  Tape tape;
  Var x, y;
};

// Addresses in the records buffer (device memory).
struct Engine::Records {
  // T: the tokens of a row that this rank has.
  int32_t* inputs = nullptr;           // [M, B, T]
  int32_t* targets = nullptr;          // [M, B, T]
  int64_t* samples = nullptr;          // [M, B]
  int64_t* counted_targets = nullptr;  // [M]
  int32_t* positions = nullptr;        // [M, B, T], where VisitInputs has them
  // If the context axis cuts rows: `places` [T] and, if rows are masked,
  // `documents` [M, B, all T].
  int32_t* places = nullptr;
  int32_t* documents = nullptr;
  // By cell (layout.h); then loss, tokens, lost, votes; then by layer.
  double* sums = nullptr;
  double* layer_sums = nullptr;  // in `sums`
  // Copies of the layers' sums, as `controls`, and by slab
  // (StepMemory::biases); null if there are no biases.
  double* moves = nullptr;
  std::map<int, int64_t*> bias_layers;
  std::vector<double*> squares;  // by slab: its cells, in `sums`
  RngKey* step_key = nullptr;
  LossRecord* loss = nullptr;
  // Two, by the step's number: updates may still run when the next begins.
  UpdateControl* controls = nullptr;
  UpdateControl* ControlOf(int64_t step) const { return controls + step % 2; }
  double* MovesOf(int64_t step, const StepMemory& memory) const {
    return moves + step % 2 * memory.layer_sums;
  }
  std::unique_ptr<Event> result;  // of a step: copied to the host
};

}  // namespace delink
