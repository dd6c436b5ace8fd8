#include "framework/base/thread_pool.h"

#include <algorithm>

#include "framework/base/check.h"

namespace delink {
namespace {

// Pieces of a loop for each thread, so that a thread with a smaller share of a
// core takes less of the loop.
constexpr int64_t kPieces = 8;

}  // namespace

ThreadPool::ThreadPool(int threads) {
  DELINK_CHECK_GE(threads, 1);
  for (int i = 1; i < threads; ++i) {
    others_.emplace_back([this] { RunOther(); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const MutexLock lock(mutex_);
    DELINK_CHECK(!at_work_) << "a pool that is at work has to stay";
    stop_ = true;
  }
  begun_.notify_all();
  for (std::thread& other : others_) other.join();
}

void ThreadPool::ParallelFor(int64_t n, const Work& work) {
  Loop loop{.work = work,
            .n = n,
            .at_once = std::max<int64_t>(1, n / (kPieces * threads()))};
  if (n <= 1 || others_.empty()) return loop.Run();
  {
    const MutexLock lock(mutex_);
    DELINK_CHECK(!at_work_) << "one loop at a time";
    at_work_ = true;
    loop_ = &loop;
  }
  begun_.notify_all();
  loop.Run();
  MutexLock lock(mutex_);
  loop_ = nullptr;
  while (others_in_loop_ > 0) lock.Wait(left_);
  at_work_ = false;
}

void ThreadPool::Loop::Run() {
  for (;;) {
    const int64_t begin = next.fetch_add(at_once, std::memory_order_relaxed);
    if (begin >= n) return;
    const int64_t end = std::min(begin + at_once, n);
    for (int64_t i = begin; i < end; ++i) work(i);
  }
}

void ThreadPool::RunOther() {
  while (Loop* const loop = Join()) {
    loop->Run();
    Leave(*loop);
  }
}

// Null when the pool is destroyed.
ThreadPool::Loop* ThreadPool::Join() {
  MutexLock lock(mutex_);
  while (!stop_ && loop_ == nullptr) lock.Wait(begun_);
  if (stop_) return nullptr;
  ++others_in_loop_;
  return loop_;
}

// The loop has no pieces left, so others need not join it.
void ThreadPool::Leave(const Loop& loop) {
  const MutexLock lock(mutex_);
  if (loop_ == &loop) loop_ = nullptr;
  if (--others_in_loop_ == 0) left_.notify_one();
}

}  // namespace delink
