#include "framework/module/mesh.h"

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
  const bool experts = axes.has(Axis::kExpert);
  DELINK_CHECK(!experts || axes == Axes{Axis::kExpert});
  const MeshPlace here = PlaceOf(rank);
  std::vector<int> group;
  for (int other = 0; other < ranks(); ++other) {
    const MeshPlace there = PlaceOf(other);
    bool with = !experts || (here[Axis::kPipeline] == there[Axis::kPipeline] &&
                             InStage(here) / expert == InStage(there) / expert);
    for (const Axis axis : order) {
      with = with && (experts || axes.has(axis) || there[axis] == here[axis]);
    }
    if (with) group.push_back(other);
  }
  return group;
}

}  // namespace delink
