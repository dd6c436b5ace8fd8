// Kernels on the emulated device: the right ones give the right numbers and are
// accused of nothing, each of the wrong ones is caught and named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "framework/base/at.h"
#include "framework/tensor/bfloat16.h"
#include "tests/testing/simt/simt.h"
#include "tests/testing/simt/simt_test.h"
#include "tests/testing/simt/test_kernels.h"

namespace delink::simt_test::kernels_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;

class KernelsTest : public SimtTest {
 protected:
  // Of what the stream is given, once it is waited for.
  template <typename Run>
  void ExpectDeath(const Run& run, const char* says) {
    EXPECT_DEATH((run(), stream_->Synchronize()), says);
  }
};
using KernelsDeathTest = KernelsTest;

TEST_F(KernelsTest, EveryThreadDoesItsPart) {
  constexpr int64_t kSize = 1001;
  const std::vector<float> from = Ramp(kSize);
  float* const to = Take<float>(kSize);
  Scale(*stream_, to, Take(from), -2, kSize);
  const std::vector<float> values = Values(to, kSize);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], -2 * from[i]) << i;
  }
}

TEST_F(KernelsTest, NeighboursInOneWordDoNotRace) {
  constexpr int64_t kSize = 333;
  std::vector<uint16_t> from, expected;
  for (int i = 0; i < kSize; ++i) {
    const BFloat16 value(0.25F * static_cast<float>(i));
    from.push_back(value.bits);
    expected.push_back(BFloat16(3 * static_cast<float>(value)).bits);
  }
  auto* const to = Take<uint16_t>(kSize);
  ScaleHalf(*stream_, to, Take(from), 3, kSize);
  EXPECT_EQ(Values(to, kSize), expected);
}

TEST_F(KernelsTest, BlocksShareMemoryBetweenBarriers) {
  constexpr int64_t kRows = 5;
  const std::vector<float> from = Ramp(kRows * 256);
  float* const to = Take<float>(kRows);
  SumRows(*stream_, to, Take(from), kRows);
  const std::vector<float> sums = Values(to, kRows);
  for (int64_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(At(sums, row),
              std::accumulate(from.begin() + row * 256,
                              from.begin() + (row + 1) * 256, 0.0F));
  }
}

TEST_F(KernelsTest, LanesShareMemoryAndShuffle) {
  constexpr int64_t kRows = 3;
  const std::vector<float> from = Ramp(kRows * 32);
  std::vector<float> expected;
  for (int64_t row = 0; row < kRows; ++row) {
    expected.insert(expected.end(), from.rend() - (row + 1) * 32,
                    from.rend() - row * 32);
  }
  float* const source = Take(from);
  for (const bool shuffles : {false, true}) {
    float* const to = Take<float>(kRows * 32);
    ReverseRows(*stream_, to, source, kRows, shuffles);
    EXPECT_EQ(Values(to, kRows * 32), expected) << shuffles;
  }
}

TEST_F(KernelsTest, SomeLanesWaitForThemselves) {
  std::vector<float> from(64);
  std::iota(from.begin(), from.end(), 0.0F);
  float* const to = Take<float>(64);
  SumEights(*stream_, to, Take(from), 2);
  const std::vector<float> sums = Values(to, 64);
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(sums[i], static_cast<float>(8 * (i - i % 8) + 28)) << i;
  }
}

TEST_F(KernelsTest, PacksAreCopied) {
  const std::vector<float> from = Ramp(4 * 77);
  float* const to = Take<float>(4 * 77);
  CopyPacks(*stream_, to, Take(from), 77);
  EXPECT_EQ(Values(to, 4 * 77), from);
}

TEST_F(KernelsTest, VotesAndShufflesFollowTheGuide) {
  auto* const out = Take<int>(9);
  Votes(*stream_, out);
  EXPECT_THAT(Values(out, 9),
              ElementsAre(1, 0, static_cast<int>(0xAAAAAAAAU), 0, 1, 32, 2, 5,
                          0 + 1 + 2 + 3 + 4 + 5 + 6 + 7));
}

TEST_F(KernelsTest, WarpsMultiplyMatrices) {
  std::vector<float> a(256), b(256), expected(256);
  for (size_t i = 0; i < 256; ++i) {
    a[i] = static_cast<float>(i * 7 % 31) - 15;
    b[i] = static_cast<float>(i * 5 % 29) - 14;
  }
  for (size_t i = 0; i < 256; ++i) {
    for (size_t k = 0; k < 16; ++k) {
      expected[i] += a[i / 16 * 16 + k] * b[16 * k + i % 16];
    }
  }
  for (const bool transposed : {false, true}) {
    auto* const to = Take<float>(256);
    Multiply(*stream_, to, Take(a), Take(b), transposed);
    EXPECT_EQ(Values(to, 256), expected) << transposed;
  }
}

TEST_F(KernelsTest, IndicesCountOverThreeDimensions) {
  constexpr int64_t kThreads = 12 * 24;
  auto* const to = Take<int>(kThreads);
  Indices(*stream_, to);
  std::vector<int> expected(kThreads);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(Values(to, kThreads), expected);
}

TEST_F(KernelsTest, AtomicOperationsDoNotRace) {
  constexpr int64_t kSize = 1000;
  std::vector<int> values(kSize);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<int>(i % 5);
  auto* const counts = Take(std::vector<int>(5, 0));
  Count(*stream_, counts, Take(values), kSize);
  EXPECT_THAT(Values(counts, 5), Each(200));
}

TEST_F(KernelsTest, TheLastBlockSeesWhatOthersHandedOver) {
  constexpr int64_t kSize = 1000;
  const std::vector<float> from = Ramp(kSize);
  auto* const sum = Take<float>(1);
  auto* const parts = Take<float>(7);
  auto* const count = Take(std::vector<unsigned>(1, 0));
  float* const source = Take(from);
  for (int i = 0; i < 2; ++i) {
    SumAll(*stream_, sum, parts, count, source, kSize, 7);
    EXPECT_THAT(Values(sum, 1)[0],
                FloatEq(std::accumulate(from.begin(), from.end(), 0.0F)));
  }
}

TEST_F(KernelsTest, AnEmptyGridIsNoLaunch) {
  const int64_t before = simt::kernels_run();
  Scale(*stream_, nullptr, nullptr, 1, 0);
  stream_->Synchronize();
  EXPECT_EQ(simt::kernels_run(), before);
}

// Each: what the flawed kernel does, and what its report says.

TEST_F(KernelsDeathTest, OutOfBounds) {
  float* const from = Take(Ramp(100));
  float* const to = Take<float>(100);
  ExpectDeath(
      [&] { Scale(*stream_, to, from, 2, 100, Flaw::kPastTheEnd); },
      "out-of-bounds write of 4 bytes at 0x[0-9a-f]+, 0 bytes past the end of "
      "the allocation of 400 bytes at 0x[0-9a-f]+\n"
      "  kernel .*ScaleKernel.*, block \\(0,0,0\\) of \\(1,1,1\\), "
      "thread \\(100,0,0\\) of \\(128,1,1\\)\n"
      "  at .*ScaleKernel.* at test_kernels.cu:[0-9]+");
  ExpectDeath(
      [&] {
        const float host = 1;
        Scale(*stream_, to, &host, 2, 1);
      },
      "out-of-bounds read of 4 bytes at .*, in no allocation of the device");
}

TEST_F(KernelsDeathTest, OutOfBoundsInSharedMemory) {
  float* const from = Take(Ramp(2 * 256));
  float* const to = Take<float>(2 * 256);
  ExpectDeath(
      [&] {
        ReverseRows(*stream_, to, from, 2, false, Flaw::kSharedPastTheEnd);
      },
      "out-of-bounds write of 4 bytes .* outside the 128 bytes of dynamic "
      "shared memory");
  ExpectDeath([&] { SumRows(*stream_, to, from, 2, Flaw::kArrayIndex); },
              "out-of-bounds index 2 of an array at .*test_kernels.cu");
}

TEST_F(KernelsDeathTest, AfterItWasFreed) {
  float* const from = Take(Ramp(100));
  void* const to = device_->Allocate(400, "a test").value();
  device_->Free(to, 400);
  ExpectDeath(
      [&] { Scale(*stream_, static_cast<float*>(to), from, 2, 100); },
      "out-of-bounds write .*, in an allocation of 400 bytes at .* that has "
      "been freed");
}

TEST_F(KernelsDeathTest, Misaligned) {
  float* const from = Take(Ramp(101));
  float* const to = Take<float>(100);
  ExpectDeath([&] { CopyPacks(*stream_, to, from, 25, Flaw::kMisaligned); },
              "misaligned read at 0x[0-9a-f]+, which is no multiple of 16, at "
              ".*:[0-9]+\n  kernel .*CopyPacksKernel");
}

TEST_F(KernelsDeathTest, Uninitialised) {
  float* const from = Take<float>(256);
  float* const to = Take<float>(256);
  ExpectDeath(
      [&] { Scale(*stream_, to, from, 2, 256); },
      "uninitialised memory: read of 4 bytes .*, which nothing has written");
  float* const filled = Take(Ramp(256));
  ExpectDeath(
      [&] { SumRows(*stream_, to, filled, 1, Flaw::kUninitialised); },
      "uninitialised memory: read .* in shared memory, which this block has "
      "not written");
}

TEST_F(KernelsDeathTest, CopiesKeepWhatIsUninitialised) {
  float* const from = Take<float>(256);
  float* const half = Take(Ramp(128));
  float* const copy = Take(Ramp(256));
  float* const to = Take<float>(256);
  device_->Copy(*stream_, from, half, 128 * 4);
  device_->Copy(*stream_, copy, from, 256 * 4);
  Scale(*stream_, to, copy, 2, 128);
  EXPECT_EQ(Values(to, 128)[7], 2 * Ramp(128)[7]);
  ExpectDeath(
      [&] { Scale(*stream_, to, copy, 2, 129); },
      "uninitialised memory: .*, 512 bytes into the allocation of 1024 bytes");
}

TEST_F(KernelsTest, UninitialisedMemoryMayBeAllowed) {
  simt::Options options = simt::CurrentOptions();
  options.report_uninitialised = false;
  const simt::ScopedOptions scoped(options);
  float* const to = Take<float>(256);
  Scale(*stream_, to, Take<float>(256), 2, 256);
  const std::vector<float> values = Values(to, 256);
  for (const float value : values) EXPECT_NE(value, value);
}

TEST_F(KernelsDeathTest, RaceInSharedMemory) {
  float* const from = Take(Ramp(512));
  float* const to = Take<float>(512);
  ExpectDeath(
      [&] { SumRows(*stream_, to, from, 2, Flaw::kNoBarrier); },
      "race in shared memory: write of 4 bytes at .*, not ordered after a "
      "read by thread \\([0-9]+,0,0\\) of the block\n"
      "  kernel .*SumRowsKernel");
  ExpectDeath([&] { SumRows(*stream_, to, from, 2, Flaw::kReadByAll); },
              "race in shared memory: write of 4 bytes at .*, not ordered "
              "after a read by .*\n  kernel .*SumRowsKernel");
  ExpectDeath(
      [&] { ReverseRows(*stream_, to, from, 2, false, Flaw::kNoWarpBarrier); },
      "race in shared memory: .*\n  kernel .*ReverseRowsKernel");
  ExpectDeath([&] { SumEights(*stream_, to, from, 2, Flaw::kNoWarpBarrier); },
              "(race in|uninitialised memory: .* in) shared memory.*\n"
              "  kernel .*SumEightsKernel");
}

TEST_F(KernelsDeathTest, RaceInGlobalMemory) {
  auto* const counts = Take(std::vector<int>(5, 0));
  auto* const values = Take(std::vector<int>(100, 3));
  ExpectDeath(
      [&] { Count(*stream_, counts, values, 2, Flaw::kTwoWriters); },
      "race in global memory: .* of 4 bytes .*, 12 bytes into the allocation "
      "of 20 bytes .*, not ordered after a write by thread \\(0,0,0\\) of the "
      "block\n  kernel .*CountKernel");
  auto* const apart = Take(std::vector<int>(33, 3));
  ExpectDeath(
      [&] {
        std::vector<int> once(33);
        std::iota(once.begin(), once.end(), 0);
        once[32] = 0;
        device_->CopyFromHost(*stream_, values, once.data(), 33 * 4);
        Count(*stream_, apart, values, 33, Flaw::kTwoWriters);
      },
      "race in global memory: .*, not ordered after a write by another block");
}

TEST_F(KernelsDeathTest, DivergentBarriers) {
  float* const from = Take(Ramp(512));
  float* const to = Take<float>(512);
  const auto sum = [&](Flaw flaw) {
    SumRows(*stream_, to, from, 2, flaw);
    stream_->Synchronize();
  };
  EXPECT_DEATH(sum(Flaw::kHalfBarrier),
               "divergent barrier: thread \\(0,0,0\\) waits in __syncthreads "
               "at test_kernels.cu:[0-9]+; thread \\(32,0,0\\) has returned");
  EXPECT_DEATH(sum(Flaw::kOtherBarrier),
               "divergent barrier: thread \\(0,0,0\\) waits in __syncthreads "
               "at test_kernels.cu:[0-9]+; thread \\(32,0,0\\) waits in "
               "__syncthreads_or at test_kernels.cu:[0-9]+");
  ExpectDeath(
      [&] { ReverseRows(*stream_, to, from, 2, true, Flaw::kLostLane); },
      "divergent barrier: thread \\(0,0,0\\) waits in __shfl_sync at "
      "test_kernels.cu:[0-9]+; thread \\(5,0,0\\) has returned");
  const float* const matrix = Take(Ramp(256));
  auto* const product = Take<float>(256);
  ExpectDeath(
      [&] {
        Multiply(*stream_, product, matrix, matrix, false, Flaw::kLostLane);
      },
      "divergent barrier: thread \\(0,0,0\\) waits in a matrix of the warp at "
      "test_kernels.cu:[0-9]+; thread \\(9,0,0\\) has returned");
}

TEST_F(KernelsDeathTest, LocalVariablesThatDoNotFit) {
  auto* const to = Take<float>(1);
  ExpectDeath([&] { Deep(*stream_, to, 900); },
              "a thread's local variables do not fit its stack");
}

}  // namespace
}  // namespace delink::simt_test::kernels_test
