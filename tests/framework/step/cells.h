// The memory of a program as the simulator sees it, and who touches what of it.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/step/program/dependencies.h"
#include "framework/step/program/instruction.h"

namespace delink::step_test {

// Numbers of cells: weights, gradients, states and squares of slabs, the norm,
// the loss, what is found and kept apart, the gradient boundaries, the slots of
// all pools, what is held between halves of backwards, slots on the host,
// copies of planes, for each slab's planes where these are, and whole
// gradients.
struct Cells {
  Cells(const Program& program, const Analysis& a);
  int32_t Slot(const Analysis& a, int32_t layer, int32_t m) const;
  int32_t Held(const Analysis& a, int32_t layer, int32_t m) const;
  int32_t Stored(const Analysis& a, int32_t layer, int32_t m) const;
  // The one that a visit of the layer reads and writes.
  int32_t Boundary(const Analysis& a, int32_t layer, int32_t m) const;
  // Where planes of a slab are at home, and where instruction `index` works on
  // them on the device, or brings them, or gives them back.
  int32_t Home(PlaneSet planes, int32_t slab) const {
    if (planes == PlaneSet::kUpdated) planes = PlaneSet::kWeight;
    return static_cast<int32_t>(planes) * slabs + slab;
  }
  int32_t Place(const Program& program, const Analysis& a, PlaneSet planes,
                int32_t slab, int32_t index) const;

  // What says where the device finds planes of a slab that have copies.
  int32_t Where(PlaneSet planes, int32_t slab) const {
    return where + Home(planes, slab);
  }

  // The whole gradient of a slab with HasWhole.
  int32_t Whole(const ProgramShape& shape, const Analysis& a,
                int32_t slab) const {
    return wholes[shape.whole_class[slab]] + a.whole_of[slab];
  }

  int32_t slabs, norm, loss, found, apart, boundaries, where, cells;
  std::vector<int32_t> copies;           // by class: where its copies begin
  std::vector<int32_t> wholes;           // by class: where its memory begins
  std::vector<int32_t> pool_of_layer;    // where its pool begins
  std::vector<int32_t> held_of_layer;    // where what is held of its class does
  std::vector<int32_t> stored_of_layer;  // and slots of it on the host
  std::vector<int32_t> chunk_of_layer;
};

// The stage of a layer.
int32_t StageAt(const ProgramShape& shape, int32_t layer);

// Whether the slab's gradient is sharded, so that visits sum it elsewhere.
bool HasWhole(const ProgramShape& shape, int32_t slab);

// Whether a rank has only a shard of the slab's weights, and whether `i`
// gathers those of all ranks.
bool HasShard(const ProgramShape& shape, int32_t slab);
bool GathersAt(const ProgramShape& shape, const Instruction& i);

// Whether it makes gradients of weights, and that of its input.
bool TrainsAt(const Instruction& i);
bool GivesAt(const Instruction& i);

// Which of the weights an update writes.
PlaneSet WrittenAt(const ProgramShape& shape, int32_t slab);

// Planes on which an instruction works on the device, those of a visit's slabs
// in the order in which its layer has them.
struct Work {
  PlaneSet planes;
  int32_t slab;
  bool write;
};
std::vector<Work> WorkOf(const ProgramShape& shape, const Instruction& i);

// Whether the gradient of a slab that `i` makes is kept apart: several blocks
// use it.
bool KeepsApart(const ProgramShape& shape, const Instruction& i, int32_t slab);

// A piece of memory that an instruction touches while it runs.
struct Access {
  int32_t cell = 0;
  bool write = false;
};

int32_t CountCells(const Program& program, const Analysis& analysis);
std::vector<Access> AccessesOf(const Program& program, const Analysis& analysis,
                               int32_t index);

}  // namespace delink::step_test
