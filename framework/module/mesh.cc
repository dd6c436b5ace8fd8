#include "framework/module/mesh.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "framework/base/check.h"

namespace delink {

const char* ToString(Axis axis) {
  switch (axis) {
    case Axis::kTensor:
      return "tensor";
    case Axis::kContext:
      return "context";
    case Axis::kData:
      return "data";
    case Axis::kPipeline:
      return "pipeline";
    case Axis::kExpert:
      break;
  }
  return "expert";
}

int Mesh::along(Axis axis) const {
  switch (axis) {
    case Axis::kTensor:
      return tensor;
    case Axis::kContext:
      return context;
    case Axis::kData:
      return data;
    case Axis::kPipeline:
      return pipeline;
    case Axis::kExpert:
      break;
  }
  return expert;
}

MeshPlace Mesh::PlaceOf(int rank) const {
  DELINK_CHECK(rank >= 0 && rank < ranks()) << rank;
  MeshPlace place;
  for (const Axis axis : order) {
    place[axis] = rank % along(axis);
    rank /= along(axis);
  }
  place[Axis::kExpert] = InStage(place) % expert;
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

int Mesh::PlacesOfVisit(AxisCut cut) const {
  const int together = tensor * context;
  return cut.axis == Axis::kExpert ? std::lcm(together, expert) : together;
}

std::vector<int> Mesh::Group(int rank, Axes axes) const {
  MeshPlace first = PlaceOf(rank);
  std::vector<int> group;
  if (axes.has(Axis::kExpert)) {
    DELINK_CHECK(axes == Axes{Axis::kExpert});
    const int from = InStage(first) / expert * expert;
    for (int at = from; at < from + expert; ++at) {
      first[Axis::kTensor] = at % tensor;
      first[Axis::kContext] = at / tensor % context;
      first[Axis::kData] = at / tensor / context;
      group.push_back(RankAt(first));
    }
    std::ranges::sort(group);
    return group;
  }
  for (const Axis axis : order) {
    if (axes.has(axis)) first[axis] = 0;
  }
  group.push_back(RankAt(first));
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
