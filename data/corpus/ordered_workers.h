// Threads that work on jobs side by side and give them back in the order they
// came: the result does not depend on how many threads there are.
//
//   while (...) {
//     while (!workers.full()) workers.Push(next job);
//     Use(workers.Pop());
//   }
//
// Push, Pop and the destructor are one thread's; `work` runs on the others, on
// one job each. No more than capacity() jobs are held, done or not.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/check.h"

namespace delink {

template <typename Job>
class OrderedWorkers {
 public:
  // With one thread the caller itself works, in Push.
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
      const std::lock_guard<std::mutex> lock(mutex_);
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
    held_.push_back(std::make_unique<Slot>());
    Slot& slot = *held_.back();
    slot.job = std::move(job);
    if (threads_.empty()) {
      work_(slot.job);
      slot.done = true;
      return;
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      waiting_.push_back(&slot);
    }
    job_there_.notify_one();
  }

  // The job pushed first of those held, once it is done.
  Job Pop() {
    DELINK_CHECK(!empty());
    Slot& slot = *held_.front();
    {
      std::unique_lock<std::mutex> lock(mutex_);
      job_done_.wait(lock, [&] { return slot.done; });
    }
    Job job = std::move(slot.job);
    held_.pop_front();
    return job;
  }

 private:
  struct Slot {
    Job job;
    bool done = false;
  };

  void Loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      job_there_.wait(lock, [&] { return closing_ || !waiting_.empty(); });
      if (closing_) return;
      Slot* slot = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      work_(slot->job);
      lock.lock();
      slot->done = true;
      job_done_.notify_one();
    }
  }

  const std::function<void(Job&)> work_;
  const size_t capacity_;
  std::deque<std::unique_ptr<Slot>> held_;  // the caller's alone

  std::mutex mutex_;  // guards what follows, and Slot::done
  std::condition_variable job_there_;
  std::condition_variable job_done_;
  std::deque<Slot*> waiting_;
  bool closing_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace delink
