#include "framework/step/groups/visit_groups.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/comm/groups.h"

namespace delink {

using Kind = VisitExchange::Kind;

void NamingGroup::AllGather(void* buffer, int64_t count, DType dtype) {
  Finish(Begin({.what = {axis_, Kind::kGather, size_ * count * SizeOf(dtype)},
                .recv = buffer,
                .count = count,
                .dtype = dtype}));
}

void NamingGroup::ReduceScatter(const void* send, void* recv, int64_t count,
                                DType dtype) {
  Finish(Begin({.what = {axis_, Kind::kScatter, size_ * count * SizeOf(dtype)},
                .send = send,
                .recv = recv,
                .count = count,
                .dtype = dtype}));
}

int64_t NamingGroup::BeginAllToAll(const void* send, void* recv, int64_t count,
                                   DType dtype, Among among) {
  const Kind kind = among == Among::kAll     ? Kind::kAllToAll
                    : among == Among::kNodes ? Kind::kAllToNodes
                                             : Kind::kAllToNode;
  return Begin({.what = {axis_, kind, CountOf(among) * count * SizeOf(dtype)},
                .send = send,
                .recv = recv,
                .count = count,
                .dtype = dtype});
}

void NamingGroup::AllReduce(void* buffer, int64_t count, DType dtype,
                            Reduction reduction) {
  const Kind kind = reduction == Reduction::kSum ? Kind::kSum : Kind::kMax;
  Finish(Begin({.what = {axis_, kind, count * SizeOf(dtype)},
                .recv = buffer,
                .count = count,
                .dtype = dtype}));
}

class StepVisitGroups::Group final : public NamingGroup {
 public:
  // `nodes` and `node` exchange as VisitGroup::Among; null: the ranks are on
  // one machine.
  Group(StepVisitGroups& all, Axis axis, Device& device, Stream& stream,
        std::unique_ptr<Communicator> comm, std::unique_ptr<Communicator> nodes,
        std::unique_ptr<Communicator> node)
      : NamingGroup(axis, comm->rank(), comm->size(),
                    nodes != nullptr ? nodes->size() : 1),
        all_(all),
        comms_{std::move(comm), std::move(nodes), std::move(node)} {
    for (size_t i = 0; i < std::size(comms_); ++i) {
      if (comms_[i] == nullptr) continue;
      streams_[i] = StageThroughHost(device, stream, *comms_[i]);
    }
  }

 private:
  struct Begun {
    VisitExchange what;
    Clock::time_point posted_at;
    std::unique_ptr<Pending> posted;  // null: it has ended
  };

  std::unique_ptr<Pending> Post(const Call& call) {
    StreamCommunicator& all = *streams_[0];
    switch (call.what.kind) {
      case Kind::kGather:
        return all.AllGather(call.recv, call.count, call.dtype);
      case Kind::kScatter:
        return all.ReduceScatter(call.send, call.recv, call.count, call.dtype,
                                 ReduceOp::kSum);
      case Kind::kAllToAll:
        return PostAllToAll(all, call);
      case Kind::kAllToNodes:
        return PostAllToAll(*streams_[1], call);
      case Kind::kAllToNode:
        return PostAllToAll(*streams_[2], call);
      case Kind::kSum:
        return all.AllReduce(call.recv, call.count, call.dtype, ReduceOp::kSum);
      case Kind::kMax:
        break;
    }
    return all.AllReduce(call.recv, call.count, call.dtype, ReduceOp::kMax);
  }

  static std::unique_ptr<Pending> PostAllToAll(StreamCommunicator& comm,
                                               const Call& call) {
    const std::vector<int64_t> counts(static_cast<size_t>(comm.size()),
                                      call.count);
    return delink::Post(comm, {.send = call.send,
                               .recv = call.recv,
                               .send_counts = counts,
                               .recv_counts = counts,
                               .dtype = call.dtype});
  }

  int64_t Begin(const Call& call) override {
    const int64_t number = next_++;
    Begun& begun = begun_[number];
    begun.what = call.what;
    if (!all_.status_.ok()) return number;
    begun.posted_at = Clock::now();
    begun.posted = Post(call);
    // A stream of a device is to get no work meanwhile (StreamCommunicator).
    if (!streams_[0]->overlaps()) WaitFor(begun);
    return number;
  }

  void Finish(int64_t number) override {
    const auto begun = begun_.find(number);
    DELINK_CHECK(begun != begun_.end()) << "it has ended";
    WaitFor(begun->second);
    begun_.erase(begun);
  }

  // What is posted ends even after an error, because its memory is in use.
  void WaitFor(Begun& begun) {
    if (begun.posted == nullptr) return;
    all_.under_way_ = &begun.what;
    const Clock::time_point waited = Clock::now();
    const std::unique_ptr<Pending> posted = std::move(begun.posted);
    const absl::Status status = all_.wait_(*posted);
    all_.under_way_ = nullptr;
    if (all_.tell_ != nullptr) all_.tell_(begun.what, begun.posted_at, waited);
    if (status.ok() || !all_.status_.ok()) return;
    all_.status_ = absl::Status(
        status.code(),
        absl::StrCat(ToString(begun.what), ": ", status.message()));
  }

  StepVisitGroups& all_;
  std::map<int64_t, Begun> begun_;  // by number
  int64_t next_ = 0;
  // By VisitGroup::Among.
  const std::unique_ptr<Communicator> comms_[3];
  std::unique_ptr<StreamCommunicator> streams_[3];
};

absl::Status StepVisitGroups::Make(Axis axis, const Mesh& mesh, Device& device,
                                   Stream& stream, Communicator& world) {
  if (mesh.along(axis) == 1) return absl::OkStatus();
  std::vector<std::vector<int>> parts;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    if (mesh.PlaceOf(rank)[axis] == 0)
      parts.push_back(mesh.Group(rank, {axis}));
  }
  DELINK_ASSIGN_OR_RETURN(auto split, SplitGroups(world, parts));
  for (std::unique_ptr<Communicator>& own : split) {
    if (own == nullptr) continue;
    std::unique_ptr<Communicator> nodes, node;
    if (axis == Axis::kExpert) {
      // By place, whatever the order of ranks.
      const int place = mesh.PlaceOf(world.rank())[axis];
      DELINK_ASSIGN_OR_RETURN(own, own->Split(0, place));
    }
    if (axis == Axis::kExpert && mesh.expert_nodes > 1) {
      const int each = mesh.expert / mesh.expert_nodes;
      DELINK_ASSIGN_OR_RETURN(nodes, own->Split(own->rank() % each, 0));
      DELINK_ASSIGN_OR_RETURN(node, own->Split(own->rank() / each, 0));
    }
    groups_.push_back(std::make_unique<Group>(*this, axis, device, stream,
                                              std::move(own), std::move(nodes),
                                              std::move(node)));
    VisitGroup*& of = axis == Axis::kTensor    ? by_axis_.tensor
                      : axis == Axis::kContext ? by_axis_.context
                                               : by_axis_.expert;
    of = groups_.back().get();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<StepVisitGroups>> StepVisitGroups::Create(
    const Mesh& mesh, Device& device, Stream& stream, Communicator& world) {
  std::unique_ptr<StepVisitGroups> groups(new StepVisitGroups);
  groups->wait_ = [](Pending& posted) { return posted.Wait(); };
  for (const Axis axis : kVisitAxes) {
    DELINK_RETURN_IF_ERROR(groups->Make(axis, mesh, device, stream, world));
  }
  return groups;
}

StepVisitGroups::~StepVisitGroups() = default;

VisitGroups StepVisitGroups::groups(bool sequence) const {
  VisitGroups groups = by_axis_;
  groups.sequence = sequence && groups.tensor != nullptr;
  return groups;
}

}  // namespace delink
