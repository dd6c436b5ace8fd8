// A lane that updates slabs while the next step's first visits run: a stream
// and, if the host does the work, a thread, which does one piece of work after
// the other with half of the cores. It keeps what it needs to know about a step
// that may be over in other lanes.
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

// Completes when all that the stream was given so far is done, including
// CopyToHost; null: it is done already. Nobody else may use the stream until
// then.
std::unique_ptr<Pending> WaitForStream(Device& device, Stream& stream);

class UpdateLane {
 public:
  // The device must outlive it. `what` names the stream; `scratch` bytes of
  // host memory are for its computations.
  static std::unique_ptr<UpdateLane> Create(Device& device,
                                            std::string_view what,
                                            int64_t scratch = 0);
  ~UpdateLane();
  UpdateLane(const UpdateLane&) = delete;
  UpdateLane& operator=(const UpdateLane&) = delete;

  // Called by the thread that drives the compute lane, before step `step`
  // begins: how many updates each slab has had. The numbers of the step before
  // stay valid.
  void Begin(int64_t step, const std::vector<int64_t>& updates);

  // The functions below are called by the thread that drives this lane.
  int64_t UpdatesAt(int64_t step, int slab) const;
  // Orders the lane behind others.
  Stream& stream() { return *stream_; }
  // Memory for the control of the update that is begun next.
  UpdateControl* control() { return &control_; }
  void* scratch() const { return scratch_.get(); }
  // Runs `work` on the lane's thread, which the first call starts. No other
  // work may be under way there.
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
