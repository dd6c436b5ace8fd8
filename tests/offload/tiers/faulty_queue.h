// Faults between a disk tier and the system.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "framework/base/mutex.h"
#include "offload/tiers/disk_queue.h"

namespace delink::testing {

// Called for one request at a time.
struct DiskFaults {
  // Before the request reaches the system: may shorten it.
  std::function<void(offload::DiskRequest& request)> before;
  // Its result, in place of the system's.
  std::function<int64_t(const offload::DiskRequest& request, int64_t result)>
      after;
};

class FaultyQueue final : public offload::DiskQueue {
 public:
  FaultyQueue(std::unique_ptr<offload::DiskQueue> inner,
              const DiskFaults& faults)
      : faults_(faults), inner_(std::move(inner)) {}

  void Submit(offload::DiskRequest& request) override {
    auto* const passed = new Passed(*this, request);
    if (faults_.before) {
      const MutexLock lock(mutex_);
      faults_.before(*passed);
    }
    inner_->Submit(*passed);
  }

 private:
  class Passed final : public offload::DiskRequest {
   public:
    Passed(FaultyQueue& queue, offload::DiskRequest& request)
        : queue_(queue), request_(request) {
      write = request.write;
      offset = request.offset;
      memory = request.memory;
      bytes = request.bytes;
    }
    void Done(int64_t result) override {
      const std::unique_ptr<Passed> self(this);
      if (queue_.faults_.after) {
        const MutexLock lock(queue_.mutex_);
        result = queue_.faults_.after(*this, result);
      }
      request_.Done(result);
    }

   private:
    FaultyQueue& queue_;
    offload::DiskRequest& request_;
  };

  const DiskFaults faults_;
  Mutex mutex_;
  std::unique_ptr<offload::DiskQueue> inner_;
};

}  // namespace delink::testing
