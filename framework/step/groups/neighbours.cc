#include "framework/step/groups/neighbours.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/comm/groups.h"

namespace delink {

absl::StatusOr<std::unique_ptr<Neighbours>> Neighbours::Create(
    const Mesh& mesh, Device& device, Communicator& world) {
  std::unique_ptr<Neighbours> neighbours(new Neighbours);
  if (mesh.pipeline == 1) return neighbours;
  std::vector<std::vector<int>> columns;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    if (mesh.PlaceOf(rank)[Axis::kPipeline] > 0) continue;
    columns.push_back(mesh.Group(rank, {Axis::kPipeline}));
  }
  DELINK_ASSIGN_OR_RETURN(auto split, SplitGroups(world, columns));
  for (std::unique_ptr<Communicator>& column : split) {
    if (column != nullptr) neighbours->column_ = std::move(column);
  }
  for (const Lane lane : {Lane::kToNext, Lane::kFromPrevious, Lane::kToPrevious,
                          Lane::kFromNext}) {
    Way& way = At(neighbours->ways_, lane);
    way.stream = device.NewStream(ToString(lane));
    way.comm = StageThroughHost(device, *way.stream, *neighbours->column_);
  }
  return neighbours;
}

Stream& Neighbours::StreamOf(Lane lane) const {
  const Way& way = At(ways_, lane);
  DELINK_CHECK(way.stream != nullptr)
      << "nothing is sent in the " << ToString(lane) << " lane";
  return *way.stream;
}

std::unique_ptr<Pending> Neighbours::Exchange(const ProgramShape& shape,
                                              const Instruction& at,
                                              const Tensor& what) const {
  StreamCommunicator& comm = *At(ways_, at.lane).comm;
  // This stage is one of the two ends.
  const int before = StageOf(shape, at.layer - 1);
  const int peer = before == comm.rank() ? StageOf(shape, at.layer) : before;
  const int tag = (at.flags & kOfGradient) != 0 ? 1 : 0;
  if (at.op == Op::kSend) {
    return comm.Send(what.data(), what.elements(), what.dtype(), peer, tag);
  }
  return comm.Recv(what.data(), what.elements(), what.dtype(), peer, tag);
}

void Neighbours::Synchronize() {
  for (Way& way : ways_) {
    if (way.stream != nullptr) way.stream->Synchronize();
  }
}

}  // namespace delink
