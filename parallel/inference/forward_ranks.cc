#include "parallel/inference/forward_ranks.h"

#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/comm/groups.h"

namespace delink {

absl::StatusOr<std::unique_ptr<ForwardRanks>> ForwardRanks::Create(
    const ParamStore& store, Communicator& world) {
  const Layout& layout = store.layout();
  Device& device = store.device();
  const Mesh& mesh = layout.mesh();
  DELINK_CHECK_EQ(mesh.context, 1);
  std::unique_ptr<ForwardRanks> ranks(new ForwardRanks(layout, device));
  ranks->place_ = mesh.PlaceOf(world.rank());
  ranks->data_places_ = mesh.PlacesOfVisit({Axis::kExpert}) / mesh.tensor;
  ranks->stage_ = ranks->place_[Axis::kPipeline];
  DELINK_ASSIGN_OR_RETURN(
      ranks->visits_,
      StepVisitGroups::Create(mesh, device, *ranks->stream_, world));
  DELINK_ASSIGN_OR_RETURN(ranks->gathers_, GatherLane::Create(store, world));
  const int together = ranks->gathers_ == nullptr ? ranks->place() : 0;
  DELINK_ASSIGN_OR_RETURN(ranks->together_,
                          world.Split(together, world.rank()));
  if (mesh.pipeline == 1) return ranks;
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    if (mesh.PlaceOf(rank)[Axis::kPipeline] > 0) continue;
    groups.push_back(mesh.Group(rank, Axes{Axis::kPipeline}));
  }
  DELINK_ASSIGN_OR_RETURN(auto split, SplitGroups(world, groups));
  for (std::unique_ptr<Communicator>& own : split) {
    if (own != nullptr) ranks->pipeline_ = std::move(own);
  }
  return ranks;
}

VisitGroups ForwardRanks::groups() const {
  VisitGroups groups = visits_->groups(/*sequence=*/false);
  groups.same_tokens = true;
  return groups;
}

int ForwardRanks::StageOf(size_t place) const {
  return At(layout_.options().chunks, place) % layout_.mesh().pipeline;
}

void ForwardRanks::HandOn(size_t place, const Tensor& output) {
  const int from = StageOf(place), to = StageOf(place + 1);
  if (from == to || (stage_ != from && stage_ != to) || !status().ok()) return;
  std::vector<char> bytes(static_cast<size_t>(output.bytes()));
  std::unique_ptr<Pending> moved;
  if (stage_ == from) {
    device_.CopyToHost(*stream_, bytes.data(), output.data(), output.bytes());
    stream_->Synchronize();
    moved = pipeline_->Send(bytes.data(), output.bytes(), DType::kU8, to,
                            /*tag=*/0);
  } else {
    moved = pipeline_->Recv(bytes.data(), output.bytes(), DType::kU8, from,
                            /*tag=*/0);
  }
  status_ = moved->Wait();
  if (stage_ == from || !status_.ok()) return;
  device_.CopyFromHost(*stream_, output.data(), bytes.data(), output.bytes());
  stream_->Synchronize();
}

bool ForwardRanks::counts() const {
  return place_[Axis::kTensor] == 0 &&
         place_[Axis::kData] % data_places_ == 0 &&
         stage_ + 1 == layout_.mesh().pipeline;
}

void ForwardRanks::Tell(void* bytes, int64_t count) {
  if (pipeline_ == nullptr || !status().ok()) return;
  status_ =
      pipeline_
          ->Broadcast(bytes, count, DType::kU8, layout_.mesh().pipeline - 1)
          ->Wait();
}

absl::Status ForwardRanks::status() const {
  if (!visits_->status().ok()) return visits_->status();
  return status_.ok() && gathers_ != nullptr ? gathers_->status() : status_;
}

}  // namespace delink
