#include "data/corpus/ordered_workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

namespace delink::ordered_workers_test {
namespace {

struct Square {
  int64_t number = 0;
  int64_t result = 0;
};

// Work that takes longer for some than for others.
void Work(Square& job) {
  if (job.number % 7 == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  job.result = job.number * job.number;
}

TEST(OrderedWorkers, ResultsComeInOrderForAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3, 8}) {
    for (const int64_t jobs : {0, 1, 5, 3000}) {
      OrderedWorkers<Square> workers(threads, Work);
      int64_t next = 0, done = 0;
      while (next < jobs || !workers.empty()) {
        while (next < jobs && !workers.full()) workers.Push({.number = next++});
        const Square job = workers.Pop();
        ASSERT_EQ(job.number, done);
        ASSERT_EQ(job.result, done * done);
        ++done;
      }
      EXPECT_EQ(done, jobs);
    }
  }
}

TEST(OrderedWorkers, HoldsNoMoreThanItsCapacity) {
  std::atomic<int> begun = 0;
  OrderedWorkers<Square> workers(3, [&](Square&) { ++begun; });
  while (!workers.full()) workers.Push({});
  EXPECT_LE(workers.capacity(), 12U);
  for (size_t i = 0; i < workers.capacity(); ++i) workers.Pop();
  EXPECT_EQ(begun, static_cast<int>(workers.capacity()));
  EXPECT_TRUE(workers.empty());
}

TEST(OrderedWorkers, MayBeLeftWithJobsUnderWay) {
  for (int round = 0; round < 50; ++round) {
    OrderedWorkers<std::vector<int>> workers(
        2, [](std::vector<int>& job) { job.assign(1000, 7); });
    for (int i = 0; i < round % 8; ++i) workers.Push({i});
  }
}

}  // namespace
}  // namespace delink::ordered_workers_test
