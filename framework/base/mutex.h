// Mutexes whose use the compiler checks: a member names the mutex that guards
// it, a function the mutex that its callers must hold, and clang rejects code
// that breaks this (.clang-tidy: clang-diagnostic-thread-safety).
//
//   void Push(int x) {
//     const MutexLock lock(mutex_);
//     Add(x);
//   }
//   void Add(int x) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
//   Mutex mutex_;
//   int sum_ ABSL_GUARDED_BY(mutex_) = 0;
//
// They are the standard library's, because ThreadSanitizer reports absl::Mutex
// falsely.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace delink {

template <typename Standard>
class ABSL_LOCKABLE BasicMutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  // False if the mutex could not be locked within `time`. TimedMutex only.
  bool TryLockFor(std::chrono::milliseconds time)
      ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    return mutex_.try_lock_for(time);
  }

 private:
  template <typename>
  friend class MutexLock;

  Standard mutex_;
};

using Mutex = BasicMutex<std::mutex>;
using TimedMutex = BasicMutex<std::timed_mutex>;

// Holds a mutex as long as it lives.
template <typename Standard>
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(BasicMutex<Standard>& mutex)
      ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  // Releases the mutex until `changed` is notified. May also return without a
  // reason: call it in a loop that tests the condition.
  void Wait(std::condition_variable& changed) {
    WithStandard([&](auto& lock) { changed.wait(lock); });
  }
  // The same, for at most `time`.
  void WaitFor(std::condition_variable& changed,
               std::chrono::microseconds time) {
    WithStandard([&](auto& lock) { changed.wait_for(lock, time); });
  }

 private:
  void WithStandard(auto&& wait) {
    std::unique_lock lock(mutex_.mutex_, std::adopt_lock);
    wait(lock);
    lock.release();
  }

  BasicMutex<Standard>& mutex_;
};

}  // namespace delink
