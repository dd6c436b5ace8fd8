// Threads of one's own for loops whose parts are independent of each other,
// beside whatever else the process computes with: a lane that works while
// others compute has a share of the cores by the number of its threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "framework/base/mutex.h"

namespace delink {

// Threads sleep between loops. They have the affinity of the thread that makes
// the pool. One loop at a time.
class ThreadPool {
 public:
  using Work = std::function<void(int64_t)>;

  // Whoever runs a loop is one of the threads.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(others_.size()) + 1; }

  // Calls work(i) once for each i from 0 to n, in neighbours on one thread, in
  // no order, and returns when all are done. What they write is then seen by
  // the caller. A thread that is late is not waited for: the others do its
  // part.
  void ParallelFor(int64_t n, const Work& work);

 private:
  struct Loop {
    const Work& work;
    int64_t n, at_once;
    std::atomic<int64_t> next = 0;

    void Run();
  };

  void RunOther();
  Loop* Join();
  void Leave(const Loop& loop);

  Mutex mutex_;
  std::condition_variable begun_, left_;
  bool at_work_ ABSL_GUARDED_BY(mutex_) = false;
  // That may be joined: parts of it may be left.
  Loop* loop_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int others_in_loop_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> others_;
};

}  // namespace delink
