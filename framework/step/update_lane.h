// Where slabs are updated beside what is computed, under the next step's first
// visits: a stream and, where the host does the work, a thread of its own,
// which does one thing after the other with half of the cores; and what it
// needs to know of a step that may be over for everybody else.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "framework/comm/communicator.h"
#include "framework/device/backend.h"
#include "framework/optim/arguments.h"

namespace delink {

// Finished when all that the stream was given so far is done, with what
// CopyToHost brings; null where it is already. The stream is used by nobody
// else until then.
std::unique_ptr<Pending> WaitForStream(Device& device, Stream& stream);

class UpdateLane {
 public:
  // The device outlives it; `what` the stream is for; `scratch` bytes of the
  // host are for what it computes.
  static std::unique_ptr<UpdateLane> Create(Device& device,
                                            std::string_view what,
                                            int64_t scratch = 0);
  ~UpdateLane();
  UpdateLane(const UpdateLane&) = delete;
  UpdateLane& operator=(const UpdateLane&) = delete;

  // By whoever drives the compute lane, before step `step` begins: how many
  // updates each slab has had. What was said of the step before stays.
  void Begin(int64_t step, const std::vector<int64_t>& updates);

  // The rest by whoever drives the lane.
  int64_t UpdatesAt(int64_t step, int slab) const;
  // Orders the lane behind others.
  Stream& stream() { return *stream_; }
  // A place for what decides the update that is begun next.
  UpdateControl* control() { return &control_; }
  void* scratch() const { return scratch_.get(); }
  // Runs `work` on the lane's thread, which the first begins; nothing else is
  // under way there.
  std::unique_ptr<Pending> Post(std::function<void()> work);

 private:
  class Work;

  UpdateLane() = default;
  void Run();

  std::unique_ptr<ThreadPool> pool_;  // where the device is the CPU
  std::unique_ptr<Stream> stream_;
  UpdateControl control_;
  HostMemory scratch_;
  std::array<std::vector<int64_t>, 2> updates_;  // by the step's number
  Mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_ ABSL_GUARDED_BY(mutex_);  // null: none
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace delink
