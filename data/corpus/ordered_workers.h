// Threads that work on jobs in parallel and return them in the order of Push,
// so that results do not depend on the number of threads.
//
//   while (...) {
//     while (!workers.full()) workers.Push(next job);
//     Use(workers.Pop());
//   }
//
// One thread calls Push, Pop and the destructor; the workers call `work`, each
// on one job at a time. At most capacity() jobs are held, done or not.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/mutex.h"

namespace delink {

template <typename Job>
class OrderedWorkers {
 public:
  // If `threads` is 1, the caller's thread does the work, in Push.
  OrderedWorkers(int threads, std::function<void(Job&)> work)
      : work_(std::move(work)),
        capacity_(threads == 1 ? 1 : 4 * static_cast<size_t>(threads)) {
    DELINK_CHECK(threads >= 1) << threads;
    for (int i = 0; threads > 1 && i < threads; ++i) {
      threads_.emplace_back([this] { Loop(); });
    }
  }
  // Jobs that no thread has begun are dropped.
  ~OrderedWorkers() {
    {
      const MutexLock lock(mutex_);
      closing_ = true;
    }
    job_there_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  OrderedWorkers(const OrderedWorkers&) = delete;
  OrderedWorkers& operator=(const OrderedWorkers&) = delete;

  size_t capacity() const { return capacity_; }
  bool full() const { return held_.size() == capacity_; }
  bool empty() const { return held_.empty(); }

  void Push(Job job) {
    DELINK_CHECK(!full());
    held_.push_back(std::make_unique<Job>(std::move(job)));
    if (threads_.empty()) {
      work_(*held_.back());
      return;
    }
    {
      const MutexLock lock(mutex_);
      waiting_.push_back(held_.back().get());
    }
    job_there_.notify_one();
  }

  // Waits for the oldest job that is held and returns it.
  Job Pop() {
    DELINK_CHECK(!empty());
    if (!threads_.empty()) {
      MutexLock lock(mutex_);
      while (done_.erase(held_.front().get()) == 0) lock.Wait(job_done_);
    }
    Job job = std::move(*held_.front());
    held_.pop_front();
    return job;
  }

 private:
  void Loop() {
    while (true) {
      Job* job = nullptr;
      {
        MutexLock lock(mutex_);
        while (!closing_ && waiting_.empty()) lock.Wait(job_there_);
        if (closing_) return;
        job = waiting_.front();
        waiting_.pop_front();
      }
      work_(*job);
      const MutexLock lock(mutex_);
      done_.insert(job);
      job_done_.notify_one();
    }
  }

  const std::function<void(Job&)> work_;
  const size_t capacity_;
  std::deque<std::unique_ptr<Job>> held_;  // used by the caller alone

  Mutex mutex_;
  std::condition_variable job_there_;
  std::condition_variable job_done_;
  std::deque<Job*> waiting_ ABSL_GUARDED_BY(mutex_);
  std::unordered_set<const Job*> done_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;

  std::vector<std::thread> threads_;
};

}  // namespace delink
