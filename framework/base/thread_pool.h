// A separate pool of threads for loops with independent iterations. Work that
// overlaps other computation uses one; its number of threads sets its share of
// the cores.
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

  // `threads` counts the thread that calls ParallelFor.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(others_.size()) + 1; }

  // Calls work(i) once for each i of [0, n), in no order; a thread takes runs
  // of neighbours. Returns when all calls are done, and the caller then sees
  // what they wrote. Threads that have not begun are not waited for: the others
  // do their part.
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
  // The loop that threads may join: iterations may be left.
  Loop* loop_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int others_in_loop_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> others_;
};

}  // namespace delink
