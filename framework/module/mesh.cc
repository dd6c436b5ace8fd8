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
  MeshPlace first = PlaceOf(rank);
  for (const Axis axis : order) {
    if (axes.has(axis)) first[axis] = 0;
  }
  std::vector<int> group = {RankAt(first)};
  int step = 1;
  for (const Axis axis : order) {
    const size_t before = group.size();
    for (int k = 1; axes.has(axis) && k < along(axis); ++k) {
      for (size_t i = 0; i < before; ++i) group.push_back(group[i] + k * step);
    }
    step *= along(axis);
  }
  return group;
}

}  // namespace delink
