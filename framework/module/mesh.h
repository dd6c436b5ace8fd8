// A mesh: how the ranks of a world are arranged. A rank has a place along each
// axis; ranks that differ only along some axes form a group of those axes.
// Experts will fold over data x context x tensor and do not multiply the world.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "framework/base/at.h"

namespace delink {

enum class Axis : uint8_t { kTensor, kContext, kData, kPipeline };
inline constexpr int kAxes = 4;

// A set of axes.
class Axes {
 public:
  constexpr Axes() = default;
  constexpr Axes(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ |= Bit(axis);
  }
  constexpr bool has(Axis axis) const { return (bits_ & Bit(axis)) != 0; }
  friend constexpr bool operator==(Axes, Axes) = default;

 private:
  static constexpr unsigned Bit(Axis axis) {
    return 1U << static_cast<unsigned>(axis);
  }
  unsigned bits_ = 0;
};

// Where a rank is along each axis.
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
  // Every axis once, the fastest first: ranks that are neighbours along
  // order[0] have neighbouring numbers, and so are on one machine if any are.
  std::array<Axis, kAxes> order = {Axis::kTensor, Axis::kContext, Axis::kData,
                                   Axis::kPipeline};

  int along(Axis axis) const;
  int ranks() const { return tensor * context * data * pipeline; }
  MeshPlace PlaceOf(int rank) const;
  int RankAt(const MeshPlace& place) const;
  // The ranks that differ from `rank` only along `axes`, with it, ascending.
  std::vector<int> Group(int rank, Axes axes) const;
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

}  // namespace delink
