#include "framework/module/mesh.h"

#include "framework/base/check.h"

namespace delink {

int Mesh::along(Axis axis) const {
  switch (axis) {
    case Axis::kTensor:
      return tensor;
    case Axis::kContext:
      return context;
    case Axis::kData:
      return data;
    case Axis::kPipeline:
      break;
  }
  return pipeline;
}

MeshPlace Mesh::PlaceOf(int rank) const {
  DELINK_CHECK(rank >= 0 && rank < ranks()) << rank;
  MeshPlace place;
  for (const Axis axis : order) {
    place[axis] = rank % along(axis);
    rank /= along(axis);
  }
  return place;
}

int Mesh::RankAt(const MeshPlace& place) const {
  int rank = 0, step = 1;
  for (const Axis axis : order) {
    DELINK_CHECK(place[axis] >= 0 && place[axis] < along(axis));
    rank += place[axis] * step;
    step *= along(axis);
  }
  return rank;
}

std::vector<int> Mesh::Group(int rank, Axes axes) const {
  const MeshPlace here = PlaceOf(rank);
  std::vector<int> group;
  for (int other = 0; other < ranks(); ++other) {
    const MeshPlace there = PlaceOf(other);
    bool with = true;
    for (const Axis axis : order) {
      with = with && (axes.has(axis) || there[axis] == here[axis]);
    }
    if (with) group.push_back(other);
  }
  return group;
}

}  // namespace delink
