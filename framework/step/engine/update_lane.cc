#include "framework/step/engine/update_lane.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/device/cpu/pooled_stream.h"
#include "framework/device/profile.h"

namespace delink {
namespace {

class OfStream final : public Pending {
 public:
  OfStream(Stream& stream, std::unique_ptr<Event> event)
      : stream_(stream), event_(std::move(event)) {}

 private:
  absl::StatusOr<bool> Poll() override { return stream_.Reached(*event_); }

  Stream& stream_;
  const std::unique_ptr<Event> event_;
};

}  // namespace

std::unique_ptr<Pending> WaitForStream(Device& device, Stream& stream) {
  std::unique_ptr<Event> event = device.NewEvent();
  stream.Record(*event);
  if (stream.Reached(*event)) return nullptr;
  return std::make_unique<OfStream>(stream, std::move(event));
}

class UpdateLane::Work final : public Pending {
 public:
  explicit Work(UpdateLane& lane) : lane_(lane) {}

 private:
  absl::StatusOr<bool> Poll() override {
    const MutexLock lock(lane_.mutex_);
    return lane_.work_ == nullptr;
  }

  UpdateLane& lane_;
};

std::unique_ptr<UpdateLane> UpdateLane::Create(Device& device,
                                               std::string_view what,
                                               int64_t scratch) {
  std::unique_ptr<UpdateLane> lane(new UpdateLane);
  if (IsCuda(device.kind()) || IsMeta(device.kind())) {
    lane->stream_ = device.NewStream(what);
  } else {
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    lane->pool_ = std::make_unique<ThreadPool>(std::max(1, cores / 2));
    lane->stream_ = NewPooledStream(device, *lane->pool_);
  }
  if (scratch > 0 && !IsMeta(device.kind())) {
    lane->scratch_ = device.AllocateHost(scratch, "updates on the host");
  }
  return lane;
}

UpdateLane::~UpdateLane() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void UpdateLane::Begin(int64_t step, const std::vector<int64_t>& updates) {
  updates_[static_cast<size_t>(step % 2)] = updates;
}

int64_t UpdateLane::UpdatesAt(int64_t step, int slab) const {
  return At(updates_[static_cast<size_t>(step % 2)], slab);
}

std::unique_ptr<Pending> UpdateLane::Post(std::function<void()> work) {
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  {
    const MutexLock lock(mutex_);
    DELINK_CHECK(work_ == nullptr) << "work of the host is under way";
    work_ = std::move(work);
  }
  changed_.notify_all();
  return std::make_unique<Work>(*this);
}

void UpdateLane::Run() {
  NameThread("updates");
  while (true) {
    std::function<void()> work;
    {
      MutexLock lock(mutex_);
      while (work_ == nullptr && !stop_) lock.Wait(changed_);
      if (work_ == nullptr) return;
      work = work_;
    }
    work();
    const MutexLock lock(mutex_);
    work_ = nullptr;
  }
}

}  // namespace delink
