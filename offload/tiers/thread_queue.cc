#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <thread>
#include <vector>

#include "framework/base/mutex.h"
#include "offload/tiers/disk_queue.h"

namespace delink::offload {
namespace {

// One request, by the calling thread.
int64_t Move(const DiskQueueOptions& options, const DiskRequest& request) {
  const int fd = options.descriptor;
  const auto bytes = static_cast<size_t>(request.bytes);
  const ssize_t moved = request.write
                            ? pwrite(fd, request.memory, bytes, request.offset)
                            : pread(fd, request.memory, bytes, request.offset);
  if (moved < 0) return -errno;
  if (options.direct || moved == 0) return moved;
  // Not sync_file_range, which does nothing on overlayfs.
  if (request.write && fdatasync(fd) != 0) return -errno;
  posix_fadvise(fd, request.offset, moved, POSIX_FADV_DONTNEED);
  return moved;
}

class ThreadQueue final : public DiskQueue {
 public:
  explicit ThreadQueue(const DiskQueueOptions& options) : options_(options) {
    for (int i = 0; i < options.most; ++i) {
      threads_.emplace_back([this] { Run(); });
    }
  }
  ~ThreadQueue() override {
    for (size_t i = 0; i < threads_.size(); ++i) Push(nullptr);
    for (std::thread& thread : threads_) thread.join();
  }

  void Submit(DiskRequest& request) override { Push(&request); }

 private:
  // Null: a thread ends.
  void Push(DiskRequest* request) {
    {
      const MutexLock lock(mutex_);
      submitted_.push_back(request);
    }
    changed_.notify_one();
  }

  void Run() {
    while (DiskRequest* const request = Next()) {
      request->Done(Move(options_, *request));
    }
  }

  DiskRequest* Next() {
    MutexLock lock(mutex_);
    while (submitted_.empty()) lock.Wait(changed_);
    DiskRequest* const next = submitted_.front();
    submitted_.pop_front();
    return next;
  }

  const DiskQueueOptions options_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<DiskRequest*> submitted_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<DiskQueue> NewThreadQueue(const DiskQueueOptions& options) {
  return std::make_unique<ThreadQueue>(options);
}

}  // namespace delink::offload
