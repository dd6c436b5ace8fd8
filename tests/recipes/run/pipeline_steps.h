// Steps of a pipeline against those of the same data ranks without one.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "framework/comm/communicator.h"
#include "tests/recipes/run/step_rig.h"

namespace delink::testing {

struct PipelineCase {
  int pipeline = 2;
  int turns = 1;  // chunks a stage; of several the schedule is interleaved
  int data = 1;
  int64_t micro_batches = 4;
  std::string kind = "gpt";
  std::string share = "none";
  RigOptions options = {.tied = false};  // what is named above apart
  bool delays = false;  // lanes begin late, each time otherwise

  int ranks() const { return pipeline * data; }
};
std::ostream& operator<<(std::ostream& out, const PipelineCase& of);

// Collectives over of.ranks() ranks, both.

// Expects the same bits of gradients, norms, five updates and evaluations on
// each rank, and that it takes what its account says. No slab is of two chunks.
void ExpectStepsAsWithout(Communicator& world, const PipelineCase& of);
// Of slabs of several chunks, of which sums are taken in another order: expects
// that gradients, losses and norms are near, and that all ranks have the same
// bits of what they have.
void ExpectStepsNearThoseWithout(Communicator& world, const PipelineCase& of);
// Of what blocks share, in one stage or in several: expects that probes find
// what they find without, that all ranks are told the same, and that steps
// between them are none the worse for them.
void ExpectProbesAsWithout(Communicator& world, const PipelineCase& of);

}  // namespace delink::testing
