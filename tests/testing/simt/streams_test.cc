// Streams and copies of the emulated device: every legal order, and nothing but
// legal ones; and the host, which may not look.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "framework/device/backend.h"
#include "framework/device/cuda/stream.h"
#include "tests/testing/simt/simt.h"
#include "tests/testing/simt/simt_test.h"
#include "tests/testing/simt/test_kernels.h"

namespace delink::simt_test::streams_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr int64_t kSize = 64;

class StreamsTest : public SimtTest {
 protected:
  StreamsTest() : other_(device_->NewStream()) {}

  // a -> b on one stream, b -> c on the other.
  std::vector<float> TwoSteps(bool wait) {
    float* const a = Take(std::vector<float>(kSize, 1));
    float* const b = Take(std::vector<float>(kSize, 0));
    float* const c = Take<float>(kSize);
    stream_->Synchronize();
    const std::unique_ptr<Event> event = device_->NewEvent();
    Scale(*stream_, b, a, 2, kSize);
    stream_->Record(*event);
    if (wait) other_->Wait(*event);
    Scale(*other_, c, b, 3, kSize);
    other_->Synchronize();
    return Values(c, kSize);
  }

  cudaStream_t Handle(Stream& stream) { return cuda::InfoOf(stream).handle; }

  std::unique_ptr<Stream> other_;
};
using StreamsDeathTest = StreamsTest;

TEST_F(StreamsTest, WhatWaitsForAnEventComesAfterIt) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const simt::ScopedOptions scoped = WithSeed(seed);
    EXPECT_THAT(TwoSteps(true), Each(6.0F));
  }
}

// Whatever order the seed makes of it, with luck or without.
TEST_F(StreamsDeathTest, WhatDoesNotWaitIsCaught) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const simt::ScopedOptions scoped = WithSeed(seed);
    EXPECT_DEATH(TwoSteps(false),
                 "race in global memory: .*, not ordered after a (read|write) "
                 "by another kernel or copy, which no stream orders before it");
  }
}

TEST_F(StreamsTest, OrdersDifferBySeed) {
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    const simt::ScopedOptions scoped = WithSeed(seed);
    std::vector<int> order;
    for (int i = 0; i < 3; ++i) {
      simt::Enqueue(Handle(*stream_), "", [&order, i] { order.push_back(i); });
      simt::Enqueue(Handle(*other_), "",
                    [&order, i] { order.push_back(10 + i); });
    }
    stream_->Synchronize();
    other_->Synchronize();
    std::vector<int> first, second;
    for (const int i : order) (i < 10 ? first : second).push_back(i);
    EXPECT_THAT(first, ElementsAre(0, 1, 2));
    EXPECT_THAT(second, ElementsAre(10, 11, 12));
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 4U);
}

TEST_F(StreamsTest, NothingIsDoneBeforeSomebodyWaits) {
  bool done = false;
  simt::Enqueue(Handle(*stream_), "", [&done] { done = true; });
  other_->Synchronize();
  stream_->Synchronize();
  EXPECT_TRUE(done);
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
            cudaSuccess);
  done = false;
  simt::Enqueue(Handle(*stream_), "", [&done] { done = true; });
  ASSERT_EQ(cudaEventRecord(event, Handle(*stream_)), cudaSuccess);
  EXPECT_FALSE(done);
  while (cudaEventQuery(event) == cudaErrorNotReady) {
  }
  EXPECT_TRUE(done);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(StreamsTest, TheNullStreamWaitsForBlockingOnes) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  float* const to = Take<float>(kSize);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const simt::ScopedOptions scoped = WithSeed(seed);
    const std::vector<float> ones(kSize, 1), twos(kSize, 2);
    std::vector<float> got(kSize);
    ASSERT_EQ(cudaMemcpyAsync(to, ones.data(), 4 * kSize,
                              cudaMemcpyHostToDevice, blocking),
              cudaSuccess);
    ASSERT_EQ(cudaMemset(to, 0, 4 * kSize), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(to, twos.data(), 4 * (kSize / 2),
                              cudaMemcpyHostToDevice, blocking),
              cudaSuccess);
    ASSERT_EQ(cudaMemcpy(got.data(), to, 4 * kSize, cudaMemcpyDeviceToHost),
              cudaSuccess);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], i < got.size() / 2 ? 2 : 0);
    }
  }
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST_F(StreamsTest, CopiesToPageableMemoryComeLate) {
  float* const from = Take(std::vector<float>(kSize, 4));
  std::vector<float> to(kSize, 1);
  ASSERT_EQ(cudaMemcpyAsync(to.data(), from, 4 * kSize, cudaMemcpyDeviceToHost,
                            Handle(*stream_)),
            cudaSuccess);
  for (const float value : to) EXPECT_NE(value, value);
  stream_->Synchronize();
  EXPECT_THAT(to, Each(4.0F));
}

TEST_F(StreamsTest, CopiesFromPinnedMemoryReadLateAndFromPageableEarly) {
  void* address = nullptr;
  ASSERT_EQ(cudaHostAlloc(&address, 4 * kSize, cudaHostAllocMapped),
            cudaSuccess);
  auto* const pinned = static_cast<float*>(address);
  std::vector<float> pageable(kSize, 1);
  std::fill_n(pinned, kSize, 1.0F);
  float* const a = Take<float>(kSize);
  float* const b = Take<float>(kSize);
  const auto copy = [&](float* to, const float* from) {
    ASSERT_EQ(cudaMemcpyAsync(to, from, 4 * kSize, cudaMemcpyHostToDevice,
                              Handle(*stream_)),
              cudaSuccess);
  };
  copy(a, pinned);
  copy(b, pageable.data());
  std::fill_n(pinned, kSize, 2.0F);
  std::fill_n(pageable.data(), kSize, 2.0F);
  EXPECT_THAT(Values(a, kSize), Each(2.0F));
  EXPECT_THAT(Values(b, kSize), Each(1.0F));
  // Kernels read and write it in place.
  Scale(*stream_, pinned, a, 5, kSize);
  stream_->Synchronize();
  EXPECT_EQ(pinned[kSize - 1], 10);
  EXPECT_EQ(cudaFreeHost(address), cudaSuccess);
}

TEST_F(StreamsDeathTest, TheHostMayNotTouchTheDevice) {
  float* const on_device = Take(std::vector<float>(kSize, 4));
  stream_->Synchronize();
  volatile float* const p = on_device + 5;
  EXPECT_DEATH(*p = *p + 1,
               "host code touches memory of the device at .*, 20 bytes into "
               "the allocation of 256 bytes at .*\n  at .*streams_test.cc|"
               "host code touches memory of the device at .*, 20 bytes into");
  EXPECT_DEATH(
      {
        const auto look = [](void* data) {
          std::exit(*static_cast<volatile float*>(data) > 0 ? 3 : 4);
        };
        (void)cudaLaunchHostFunc(Handle(*stream_), look, on_device);
        stream_->Synchronize();
      },
      "host code touches memory of the device");
}

TEST_F(StreamsDeathTest, CopiesAreCheckedToo) {
  float* const a = Take(std::vector<float>(kSize, 4));
  std::vector<float> big(kSize + 1);
  EXPECT_DEATH(Values(a, kSize + 1),
               "out-of-bounds read of 260 bytes at .*, 0 bytes into the "
               "allocation of 256 bytes");
}

TEST_F(StreamsDeathTest, PinnedMemoryMustOutliveItsCopies) {
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, 256, cudaHostAllocDefault), cudaSuccess);
  float* const to = Take<float>(kSize);
  EXPECT_DEATH(
      {
        (void)cudaMemcpyAsync(to, pinned, 256, cudaMemcpyHostToDevice,
                              Handle(*stream_));
        (void)cudaFreeHost(pinned);
        stream_->Synchronize();
      },
      "in an allocation of 256 bytes at .* that has been freed");
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(StreamsTest, EventsTakeTheTimeWhenTheyAreReached) {
  cudaEvent_t events[2];
  for (cudaEvent_t& event : events) {
    ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  }
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, events[0], events[1]),
            cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaEventRecord(events[0], Handle(*stream_)), cudaSuccess);
  simt::Enqueue(Handle(*stream_), "", [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
  ASSERT_EQ(cudaEventRecord(events[1], Handle(*stream_)), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, events[0], events[1]),
            cudaErrorNotReady);
  ASSERT_EQ(cudaEventSynchronize(events[1]), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, events[0], events[1]),
            cudaSuccess);
  EXPECT_GE(milliseconds, 2);
  for (cudaEvent_t event : events) {
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  }
  (void)cudaGetLastError();
}

// Two copies to the device and one back, a kernel between two of them, and work
// after the host has waited.
TEST_F(StreamsTest, AClockOfTheDeviceCountsWhatWorkTakes) {
  simt::Options options = simt::CurrentOptions();
  options.nanoseconds = [](const simt::Operation& of) {
    if (of.way != simt::Way::kNone) return of.bytes;
    return of.name == "kernel" ? 1000 * of.blocks : 0;
  };
  float* const a = Take<float>(kSize);
  float* const b = Take<float>(kSize);
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, 8 * kSize, cudaHostAllocDefault),
            cudaSuccess);
  std::fill_n(static_cast<float*>(pinned), 2 * kSize, 1.0F);
  const simt::ScopedOptions scoped(options);
  std::vector<std::unique_ptr<Event>> events;
  const auto record = [&](Stream& stream) {
    events.push_back(device_->NewTimingEvent());
    stream.Record(*events.back());
  };
  record(*stream_);
  device_->CopyFromHost(*stream_, a, pinned, 4 * kSize);
  record(*stream_);  // 256
  Scale(*stream_, a, a, 2, kSize);
  record(*stream_);  // 256 + 1000
  device_->CopyFromHost(*other_, b, pinned, 4 * kSize);
  record(*other_);  // behind the first copy: 512
  device_->CopyToHost(*other_, static_cast<float*>(pinned) + kSize, b, 128);
  record(*other_);  // 640
  other_->Wait(*events[2]);
  record(*other_);  // 1256
  stream_->Synchronize();
  const std::unique_ptr<Stream> third = device_->NewStream();
  record(*third);  // 1256
  third->Synchronize();
  std::vector<double> times;
  for (const auto& event : events) {
    times.push_back(
        std::round(1e9 * device_->SecondsBetween(*events[0], *event)));
  }
  EXPECT_THAT(times, ElementsAre(0, 256, 1256, 512, 640, 1256, 1256));
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(StreamsTest, ThreadsOfTheHostWaitForTheirOwnStreams) {
  constexpr int kThreads = 3;
  float* const from = Take(std::vector<float>(kSize, 2));
  stream_->Synchronize();
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> got(kThreads);
  std::vector<float*> to;
  for (int t = 0; t < kThreads; ++t) to.push_back(Take<float>(kSize));
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::unique_ptr<Stream> stream = device_->NewStream();
      for (int i = 0; i < 20; ++i) {
        Scale(*stream, to[t], from, static_cast<float>(t), kSize);
      }
      got[t].resize(kSize);
      device_->CopyToHost(*stream, got[t].data(), to[t], 4 * kSize);
      stream->Synchronize();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < kThreads; ++t) {
    EXPECT_THAT(got[t], Each(2.0F * static_cast<float>(t)));
  }
}

TEST_F(StreamsTest, ErrorsOfTheRuntime) {
  float* const a = Take<float>(kSize);
  std::vector<float> host(kSize);
  EXPECT_EQ(cudaMemcpy(host.data(), a, 4, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaFree(a + 1), cudaErrorInvalidValue);
  (void)cudaGetLastError();

  simt::Options options = simt::CurrentOptions();
  options.memory_bytes = simt::bytes_in_use() + 1000;
  void* address = nullptr;
  {
    const simt::ScopedOptions scoped(options);
    EXPECT_EQ(cudaMalloc(&address, 1001), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaMalloc(&address, 1000), cudaSuccess);
    EXPECT_EQ(cudaFree(address), cudaSuccess);
  }
  int count = -1;
  options.devices = 0;
  {
    const simt::ScopedOptions scoped(options);
    EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    EXPECT_EQ(count, 0);
  }
  options.driver_version = 12020;
  {
    const simt::ScopedOptions scoped(options);
    EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  }
  (void)cudaGetLastError();
}

}  // namespace
}  // namespace delink::simt_test::streams_test
