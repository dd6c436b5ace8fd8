#include "layers/kernels/cuda/attention_scratch.h"

#include <gtest/gtest.h>

#include "framework/device/cuda/scratch.h"
#include "framework/tensor/bfloat16.h"
#include "layers/kernels/cuda/cuda.h"

namespace delink::cuda::attention_scratch_test {
namespace {

AttentionBackwardArgs Training(int64_t B, int64_t H, int64_t Hkv, int64_t Dh,
                               int64_t T) {
  return {.B = B, .H = H, .Hkv = Hkv, .Dh = Dh, .Tq = T, .Tk = T, .scale = 1.0};
}

int64_t Bytes(const AttentionBackwardArgs& s) {
  return AttentionBackwardScratch<BFloat16>(s, 0);
}

TEST(AttentionScratch, ForwardAndF32NeedNone) {
  EXPECT_EQ(
      AttentionForwardScratch<BFloat16>(
          {.B = 8, .H = 32, .Hkv = 8, .Dh = 128, .Tq = 4096, .Tk = 4096}, 0),
      0);
  EXPECT_EQ(AttentionForwardScratch<float>({.B = 8}, 0), 0);
  EXPECT_EQ(AttentionBackwardScratch<float>(Training(8, 32, 8, 128, 4096), 0),
            0);
}

// Of every score's gradient two bytes, at least: what cuDNN is known to take.
TEST(AttentionScratch, HoldsTheGradientsOfAPartsScores) {
  for (const int64_t T : {256, 1000, 1024, 4096}) {
    for (const int64_t B : {1, 3, 8, 12}) {
      const AttentionBackwardArgs s = Training(B, 24, 8, 128, T);
      const AttentionPart part = BackwardPart(s);
      SCOPED_TRACE(T);
      EXPECT_EQ(B % part.samples, 0);
      EXPECT_EQ(s.Hkv % part.kv_heads, 0);
      EXPECT_TRUE(part.samples == 1 || part.kv_heads == s.Hkv);
      EXPECT_GE(part.workspace, part.samples * part.kv_heads * 3 * 2 * T * T);
      EXPECT_EQ(Bytes(s), part.workspace <= kScratchBytes ? 0 : part.workspace);
    }
  }
}

// Sums in any order take what grows with the sequence, not with its square.
TEST(AttentionScratch, IsLessWhereSumsMayBeMadeInAnyOrder) {
  AttentionBackwardArgs s = Training(1, 32, 8, 128, 8192);
  const AttentionPart in_order = BackwardPart(s);
  s.deterministic = false;
  const AttentionPart part = BackwardPart(s);
  EXPECT_EQ(in_order.kv_heads, 1);
  EXPECT_EQ(part.kv_heads, 8);
  EXPECT_LT(part.workspace, in_order.workspace);
  s = Training(1, 8, 1, 128, 1 << 16);
  EXPECT_FALSE(IsForCudnn(s));
  s.deterministic = false;
  EXPECT_TRUE(IsForCudnn(s));
}

TEST(AttentionScratch, GrowsWithABatchOnlyUpToALimit) {
  const int64_t one = Bytes(Training(1, 28, 4, 128, 1024));
  EXPECT_GT(one, kScratchBytes);
  EXPECT_LT(Bytes(Training(2, 28, 4, 128, 1024)), 2 * one + 1);
  EXPECT_LE(Bytes(Training(64, 28, 4, 128, 1024)), int64_t{512} << 20);
  // 67 is a prime number: a sample at a time.
  EXPECT_EQ(Bytes(Training(67, 28, 4, 128, 1024)), one);
  // A sample of 4 GiB of scores goes by its key/value heads.
  const AttentionPart part = BackwardPart(Training(2, 32, 8, 128, 8192));
  EXPECT_EQ(part.samples, 1);
  EXPECT_EQ(part.kv_heads, 1);
}

TEST(AttentionScratch, IsForWholeRowsAndWidthsThatCudnnTakes) {
  EXPECT_TRUE(IsForCudnn(Training(1, 4, 2, 64, 2)));
  EXPECT_FALSE(IsForCudnn(Training(1, 4, 2, 64, 1)));
  EXPECT_FALSE(IsForCudnn(Training(1, 4, 2, 65, 64)));
  EXPECT_FALSE(IsForCudnn(Training(1, 4, 2, 264, 64)));
  EXPECT_FALSE(IsForCudnn(Training(0, 4, 2, 64, 64)));
  AttentionBackwardArgs generation = Training(1, 4, 2, 64, 64);
  generation.Tk = 65;
  EXPECT_FALSE(IsForCudnn(generation));
  AttentionBackwardArgs masked = Training(1, 8, 2, 128, 4096);
  EXPECT_GT(Bytes(masked), 0);
  const int32_t positions = 0;
  masked.positions = &positions;
  EXPECT_FALSE(IsForCudnn(masked));
  EXPECT_EQ(Bytes(masked), 0);
  // One key/value head alone would take more than is worth it.
  const AttentionBackwardArgs endless = Training(1, 8, 1, 128, 1 << 16);
  EXPECT_FALSE(IsForCudnn(endless));
  EXPECT_EQ(Bytes(endless), 0);
}

}  // namespace
}  // namespace delink::cuda::attention_scratch_test
