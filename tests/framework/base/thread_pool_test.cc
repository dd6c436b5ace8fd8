#include "framework/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "framework/base/at.h"

namespace delink::thread_pool_test {
namespace {

TEST(ThreadPool, EveryPartIsDoneOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t n : {0, 1, 2, 7, 64, 1001}) {
      // Not atomic: what threads have written is there when the loop returns.
      std::vector<int> done(static_cast<size_t>(n));
      pool.ParallelFor(n, [&](int64_t i) { ++At(done, i); });
      EXPECT_EQ(done, std::vector<int>(done.size(), 1)) << n << ", " << threads;
    }
  }
}

// Each part waits for the others: parts are at work at the same time, on
// threads that stay from loop to loop.
TEST(ThreadPool, ThreadsWorkBesideEachOtherAndStay) {
  constexpr int kThreads = 3;
  ThreadPool pool(kThreads);
  std::set<std::thread::id> first;
  for (int loop = 0; loop < 50; ++loop) {
    std::atomic<int> arrived = 0;
    std::vector<std::thread::id> ids(kThreads);
    pool.ParallelFor(kThreads, [&](int64_t i) {
      At(ids, i) = std::this_thread::get_id();
      ++arrived;
      while (arrived < kThreads) std::this_thread::yield();
    });
    const std::set<std::thread::id> now(ids.begin(), ids.end());
    EXPECT_EQ(now.size(), size_t{kThreads});
    EXPECT_TRUE(now.contains(std::this_thread::get_id()));
    if (loop == 0) first = now;
    EXPECT_EQ(now, first);
  }
}

// One that is held up in a part keeps no other from the rest.
TEST(ThreadPool, OthersDoThePartOfOneThatIsLate) {
  ThreadPool pool(2);
  std::atomic<int> done = 0;
  pool.ParallelFor(64, [&](int64_t i) {
    if (i == 0) {
      while (done < 60) std::this_thread::yield();
    }
    ++done;
  });
  EXPECT_EQ(done, 64);
}

TEST(ThreadPool, ManyShortLoops) {
  ThreadPool pool(4);
  int64_t sum = 0;
  for (int64_t loop = 0; loop < 2000; ++loop) {
    std::vector<int64_t> parts(5);
    pool.ParallelFor(5, [&](int64_t i) { At(parts, i) = loop + i; });
    for (const int64_t part : parts) sum += part;
  }
  EXPECT_EQ(sum, 5 * 1999 * 2000 / 2 + 2000 * 10);
}

TEST(ThreadPoolDeathTest, OneLoopAtATime) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.ParallelFor(2,
                         [&](int64_t) { pool.ParallelFor(2, [](int64_t) {}); });
      },
      "one loop at a time");
}

}  // namespace
}  // namespace delink::thread_pool_test
