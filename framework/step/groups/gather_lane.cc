#include "framework/step/groups/gather_lane.h"

#include <algorithm>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/device/profile.h"

namespace delink {

absl::StatusOr<std::unique_ptr<GatherLane>> GatherLane::Create(
    const ParamStore& store, Communicator& world) {
  const std::vector<PlacementRow>& rows = store.layout().placement().rows;
  if (std::ranges::none_of(
          rows, [](const PlacementRow& row) { return row.weight.sharded; })) {
    return nullptr;
  }
  std::unique_ptr<GatherLane> lane(new GatherLane(store));
  DELINK_ASSIGN_OR_RETURN(lane->comm_, world.Split(0, world.rank()));
  DELINK_ASSIGN_OR_RETURN(
      lane->groups_, SlabGroups::Create(store, store.device(), *lane->stream_,
                                        *lane->comm_, {.shards = true}));
  lane->thread_ = std::thread([lane = lane.get()] { lane->Run(); });
  return lane;
}

GatherLane::GatherLane(const ParamStore& store)
    : stream_(store.device().NewStream("gather")) {}

GatherLane::~GatherLane() {
  {
    const MutexLock lock(mutex_);
    DELINK_CHECK_EQ(finished_, begun_count_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  stream_->Synchronize();
}

int64_t GatherLane::Begin(const Gather& gather) {
  int64_t number = 0;
  {
    const MutexLock lock(mutex_);
    begun_.push_back(gather);
    number = ++begun_count_;
  }
  changed_.notify_all();
  return number;
}

void GatherLane::Finish(int64_t number) {
  MutexLock lock(mutex_);
  while (finished_ < number) lock.Wait(changed_);
}

absl::Status GatherLane::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

void GatherLane::Run() {
  NameThread("gather");
  while (true) {
    Gather gather;
    bool works = true;
    {
      MutexLock lock(mutex_);
      while (begun_.empty() && !stop_) lock.Wait(changed_);
      if (begun_.empty()) return;
      gather = begun_.front();
      begun_.pop_front();
      works = status_.ok();
    }
    const absl::Status status = works ? Make(gather) : absl::OkStatus();
    stream_->Record(*gather.came);
    {
      const MutexLock lock(mutex_);
      if (!status.ok()) status_ = status;
      ++finished_;
    }
    changed_.notify_all();
  }
}

absl::Status GatherLane::Make(const Gather& gather) {
  stream_->Wait(*gather.left);
  const std::unique_ptr<Pending> pending =
      groups_->GatherWeights(gather.slab, gather.copy);
  return pending == nullptr ? absl::OkStatus() : pending->Wait();
}

}  // namespace delink
