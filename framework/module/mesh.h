// A mesh: how the ranks of a world are arranged. A rank has a place along each
// axis; ranks that differ only along some axes form a group of those axes.
// The expert axis does not multiply the world: it folds over the ranks of a
// pipeline stage, `expert` neighbours at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <tuple>
#include <vector>

#include "framework/base/at.h"

namespace delink {

enum class Axis : uint8_t { kTensor, kContext, kData, kPipeline, kExpert };
inline constexpr int kMeshAxes = 4;  // the first; their product is the world
inline constexpr int kAxes = 5;

// "tensor"
const char* ToString(Axis axis);

// How parameters are cut over the ranks of an axis. If there are more places
// than pieces, neighbours have the same piece. One piece: not cut.
struct AxisCut {
  Axis axis = Axis::kTensor;  // or kExpert
  int pieces = 1;
  friend bool operator==(const AxisCut&, const AxisCut&) = default;
  friend bool operator<(const AxisCut& a, const AxisCut& b) {
    return std::tie(a.axis, a.pieces) < std::tie(b.axis, b.pieces);
  }
};

// A set of axes.
class Axes {
 public:
  constexpr Axes() = default;
  constexpr Axes(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) add(axis);
  }
  constexpr void add(Axis axis) { bits_ |= Bit(axis); }
  constexpr bool has(Axis axis) const { return (bits_ & Bit(axis)) != 0; }
  friend constexpr bool operator==(Axes, Axes) = default;

 private:
  static constexpr unsigned Bit(Axis axis) {
    return 1U << static_cast<unsigned>(axis);
  }
  unsigned bits_ = 0;
};

// Where a rank is along each axis. The place along kExpert follows from the
// others.
struct MeshPlace {
  std::array<int, kAxes> along{};
  int& operator[](Axis axis) { return At(along, axis); }
  int operator[](Axis axis) const { return At(along, axis); }
  friend bool operator==(const MeshPlace&, const MeshPlace&) = default;
};

struct Mesh {
  // Ranks along each axis, at least 1.
  int tensor = 1;
  int context = 1;
  int data = 1;
  int pipeline = 1;
  int expert = 1;  // divides the ranks of a stage
  // The machines of an expert group, so many runs of neighbours in it, to each
  // of which a token goes once; 1: machines do not matter.
  int expert_nodes = 1;
  // Every axis but kExpert once, the fastest first: ranks that are neighbours
  // along order[0] have neighbouring numbers, and so are on one machine if any
  // are.
  std::array<Axis, kMeshAxes> order = {Axis::kTensor, Axis::kContext,
                                       Axis::kData, Axis::kPipeline};

  int along(Axis axis) const;
  int ranks() const { return tensor * context * data * pipeline; }
  MeshPlace PlaceOf(int rank) const;
  int RankAt(const MeshPlace& place) const;
  // The place of a rank in its stage, whatever the order: tensor place + tensor
  // x (context place + context x data place).
  int InStage(const MeshPlace& place) const {
    return place[Axis::kTensor] +
           tensor * (place[Axis::kContext] + context * place[Axis::kData]);
  }
  // The piece of the rank at a place of its stage.
  int PieceAt(int in_stage, AxisCut cut) const {
    const int places = along(cut.axis);
    return in_stage % places * cut.pieces / places;
  }
  // Of neighbouring places of a stage, this many may have unlike pieces of
  // parameters; then they repeat. WeightPlaceOf: a rank's among them.
  int weight_places() const { return std::lcm(tensor, expert); }
  int WeightPlaceOf(int rank) const {
    return InStage(PlaceOf(rank)) % weight_places();
  }
  // How many neighbouring places of a stage together make the gradient of a
  // micro-batch for a parameter with this cut: those of a data place, or of
  // several whose tokens meet at experts.
  int PlacesOfVisit(AxisCut cut) const;
  // The ranks that differ from `rank` only along `axes`, with it, ascending.
  // Axis::kExpert goes with no other.
  std::vector<int> Group(int rank, Axes axes) const;
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

}  // namespace delink
