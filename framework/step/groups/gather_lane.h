// Gathers sharded weights into copies on the device, beside a forward pass: a
// stream, and a thread that makes one gather after the other. All ranks of a
// gather group must begin the same gathers in the same order.
//
// After an error of the transport no more gathers are made; those that were
// begun count as finished.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/mutex.h"
#include "framework/comm/communicator.h"
#include "framework/device/backend.h"
#include "framework/module/param_store.h"
#include "framework/step/groups/slab_groups.h"

namespace delink {

class GatherLane {
 public:
  struct Gather {
    int slab = -1;                // of the store
    char* copy = nullptr;         // whole_bytes of device memory
    const Event* left = nullptr;  // the copy is free
    Event* came = nullptr;        // recorded when the copy is complete
  };
  // Collective over `world`, the ranks of the store's layout; both outlive the
  // lane. Null if the layout shards no weights.
  static absl::StatusOr<std::unique_ptr<GatherLane>> Create(
      const ParamStore& store, Communicator& world);
  // All gathers must be finished.
  ~GatherLane();
  GatherLane(const GatherLane&) = delete;
  GatherLane& operator=(const GatherLane&) = delete;

  // Begins a gather, and returns its number: 1, 2, ... Until it is finished,
  // nobody else uses its events.
  int64_t Begin(const Gather& gather);
  // Blocks until gather `number` is finished: its `came` is recorded.
  void Finish(int64_t number);
  // The first error.
  absl::Status status() const;

 private:
  explicit GatherLane(const ParamStore& store);
  void Run();
  absl::Status Make(const Gather& gather);

  const std::unique_ptr<Stream> stream_;
  std::unique_ptr<Communicator> comm_;  // of the world's ranks
  std::unique_ptr<SlabGroups> groups_;
  mutable Mutex mutex_;
  std::condition_variable changed_;
  std::deque<Gather> begun_ ABSL_GUARDED_BY(mutex_);
  int64_t begun_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t finished_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace delink
