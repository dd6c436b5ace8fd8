// What planners, validator and executor look up in a shape for every
// instruction. It is computed once, because a shape has thousands of layers.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/step/program/instruction.h"

namespace delink {

class ShapeTable {
 public:
  // O(layers and their slabs, slabs x stages).
  explicit ShapeTable(const ProgramShape& shape);

  // Whether layers of the stage use the slab.
  bool IsHere(int32_t stage, int32_t slab) const { return here_[slab][stage]; }
  // How many ranks have the slab, and reduce its gradient: those of the stages
  // whose layers use it.
  int32_t GroupSize(int32_t slab) const { return group_size_[slab]; }
  // How many stages have layers that use the slab.
  int32_t StagesWith(int32_t slab) const { return stages_with_[slab]; }
  // The first of these stages.
  int32_t FirstStageOf(int32_t slab) const;
  // How many ranks of one stage have the slab and each give a part of its
  // gradient of one micro-batch (Mesh::PlacesOfVisit).
  int32_t VisitGroupSize(int32_t slab) const { return visit_group_size_[slab]; }
  // Whether blocks share the slab and several ranks give parts of its gradient
  // of one micro-batch. A probe needs the whole, so it reduces it over these
  // ranks.
  bool IsReducedByProbe(int32_t slab) const { return probed_[slab]; }

  // The lane in which planners put an instruction and the engine runs it. A
  // reduction of one rank exchanges nothing, so compute does it. A kRelease
  // does nothing and may be in any lane.
  Lane LaneOf(const Instruction& instruction) const;

 private:
  std::vector<std::vector<bool>> here_;    // by slab and stage
  std::vector<int32_t> stages_with_;       // by slab
  std::vector<int32_t> group_size_;        // by slab
  std::vector<int32_t> visit_group_size_;  // by slab
  std::vector<bool> probed_;               // by slab
  std::vector<Lane> updates_;              // by slab
  std::vector<Lane> fetches_;              // by slab: of weights for visits
};

}  // namespace delink
