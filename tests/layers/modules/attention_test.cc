#include "layers/modules/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "layers/ops/causal_attention.h"
#include "tests/testing/gradcheck.h"
#include "tests/testing/numbers.h"

namespace delink::attention_test {
namespace {

using Values = std::vector<double>;

// Attention of packed rows [B, T, (H + 2 Hkv) Dh].
Values Attend(Values qkv, const Shape& shape, int64_t heads, int64_t kv_heads) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  testing::VisitRunner visit({.device = device.get(), .layer = [&](Var x) {
                                return ops::CausalAttention(x, heads, kv_heads);
                              }});
  visit.Forward(Phase::kForward, {}, Tensor(qkv.data(), DType::kF64, shape),
                Tensor());
  const auto* const o = static_cast<const double*>(visit.output().data());
  return {o, o + visit.output().shape().elements()};
}

TEST(CausalAttention, GroupedQueriesAreRepeatedKeysAndValues) {
  constexpr int64_t B = 2, T = 6, H = 6, Hkv = 2, Dh = 3;
  constexpr int64_t kRow = (H + 2 * Hkv) * Dh, kFullRow = 3 * H * Dh;
  const Values grouped = testing::Normals<double>("qkv", B * T * kRow);
  Values full(B * T * kFullRow);
  for (int64_t t = 0; t < B * T; ++t) {
    for (int64_t h = 0; h < H; ++h) {
      for (int64_t d = 0; d < Dh; ++d) {
        const double* const from = &grouped[t * kRow + d];
        double* const to = &full[t * kFullRow + h * Dh + d];
        const int64_t hkv = h / (H / Hkv);
        to[0] = from[h * Dh];
        to[H * Dh] = from[(H + hkv) * Dh];
        to[2 * H * Dh] = from[(H + Hkv + hkv) * Dh];
      }
    }
  }
  EXPECT_EQ(Attend(grouped, {B, T, kRow}, H, Hkv),
            Attend(full, {B, T, kFullRow}, H, H));
}

TEST(CausalAttention, TokensDoNotSeeWhatComesLater) {
  constexpr int64_t T = 5, H = 2, Dh = 3, kRow = 3 * H * Dh;
  const Values qkv = testing::Normals<double>("qkv", T * kRow);
  Values changed = qkv;
  for (int64_t i = 3 * kRow; i < T * kRow; ++i) changed[i] += 1.0;
  const Values a = Attend(qkv, {1, T, kRow}, H, H);
  const Values b = Attend(changed, {1, T, kRow}, H, H);
  const auto seen = 3 * H * Dh;
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + seen, b.begin()));
  EXPECT_NE(a[seen], b[seen]);
  // The first token sees itself alone: its value comes out.
  for (int64_t i = 0; i < H * Dh; ++i) EXPECT_EQ(a[i], qkv[2 * H * Dh + i]);
}

TEST(KvCache, KeepsKeysAndValuesInPlace) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  const std::unique_ptr<Stream> stream = device->NewStream();
  constexpr int64_t B = 2, kCapacity = 5, kRow = 4, kWidth = 2;
  KvCache cache(*device, B, kCapacity);
  EXPECT_EQ(device->bytes_in_use(), 0);
  Values rows = testing::Normals<double>("rows", B * kCapacity * kRow);
  // Tokens [from, to) of both sequences, packed.
  const auto append = [&](int64_t from, int64_t to) {
    Values packed;
    for (int64_t b = 0; b < B; ++b) {
      packed.insert(packed.end(), rows.begin() + (b * kCapacity + from) * kRow,
                    rows.begin() + (b * kCapacity + to) * kRow);
    }
    cache.Append(*stream,
                 Tensor(packed.data(), DType::kF64, {B, to - from, kRow}),
                 kWidth, from);
    EXPECT_EQ(cache.size(), to);
    const auto* const kept = static_cast<const double*>(cache.value().data());
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t t = 0; t < to; ++t) {
        for (int64_t i = 0; i < kWidth; ++i) {
          EXPECT_EQ(kept[(b * kCapacity + t) * kWidth + i],
                    rows[(b * kCapacity + t) * kRow + kRow - kWidth + i]);
        }
      }
    }
  };
  append(0, 3);
  append(3, 4);
  append(4, 5);
  for (double& v : rows) v += 1;
  append(0, 2);  // begins anew
  EXPECT_DEATH(append(3, 4), "tokens at 3 of 5, 2 known");
}

}  // namespace
}  // namespace delink::attention_test
