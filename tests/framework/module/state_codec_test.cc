// Every form that values are kept in: what comes back of them, wherever blocks
// are cut, and that it stays when it is kept again.
#include "framework/module/state_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "framework/base/at.h"
#include "framework/module/state_layout.h"
#include "framework/tensor/bfloat16.h"
#include "framework/tensor/block8.h"
#include "framework/tensor/master.h"

namespace delink::state_codec_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr StateCodec kSigned8{.storage = StateStorage::kBlock8};
constexpr StateCodec kUnsigned8{.storage = StateStorage::kBlock8,
                                .is_signed = false};
constexpr StateCodec kRounded{.storage = StateStorage::kBF16};

struct Stored {
  std::vector<uint8_t> bytes;
  std::vector<float> scales;
  friend bool operator==(const Stored&, const Stored&) = default;
};

Stored Encoded(const StateCodec& codec, int64_t element,
               const std::vector<float>& values) {
  const auto n = static_cast<int64_t>(values.size());
  Stored stored;
  stored.bytes.resize(
      static_cast<size_t>(n * SizeOf(codec.storage, codec.exact)));
  if (codec.storage == StateStorage::kBlock8) {
    stored.scales.resize(static_cast<size_t>(ScalesOf(element, element + n)));
  }
  codec.Encode(element, n, values.data(), stored.bytes.data(),
               stored.scales.data());
  return stored;
}

std::vector<float> Decoded(const StateCodec& codec, int64_t element,
                           const Stored& stored) {
  const int64_t size = SizeOf(codec.storage, codec.exact);
  std::vector<float> values(stored.bytes.size() / static_cast<size_t>(size));
  codec.Decode(element, static_cast<int64_t>(values.size()),
               stored.bytes.data(), stored.scales.data(), values.data());
  return values;
}

std::vector<float> RoundTripped(const StateCodec& codec, int64_t element,
                                std::vector<float> values) {
  codec.RoundTrip(element, static_cast<int64_t>(values.size()), values.data());
  return values;
}

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) {
    bits.push_back(std::bit_cast<uint32_t>(value));
  }
  return bits;
}

// Over many decades, with zeros of both signs among them.
std::vector<float> AnyValues(std::mt19937_64& random, size_t count,
                             bool is_signed) {
  std::normal_distribution<double> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    const double x = normal(random);
    value = static_cast<float>(x * std::exp(4 * normal(random)));
    if (random() % 16 == 0) value = 0;
    if (!is_signed) value = std::abs(value);
    if (is_signed && random() % 32 == 0) value = -0.0F;
  }
  return values;
}

TEST(StateCodecTest, ExactValuesAreCopied) {
  const StateCodec f32;
  const std::vector<float> values = {1, -0.0F, kInf,
                                     std::bit_cast<float>(0x7F812345U), 1e-42F};
  const Stored stored = Encoded(f32, 3, values);
  EXPECT_EQ(Bits(Decoded(f32, 3, stored)), Bits(values));
  EXPECT_EQ(Bits(RoundTripped(f32, 3, values)), Bits(values));

  const StateCodec f64{.exact = DType::kF64};
  const double wide[] = {1.0 / 3, -1e300};
  double kept[2] = {}, again[2] = {};
  f64.Encode(0, 2, wide, kept, nullptr);
  f64.Decode(0, 2, kept, nullptr, again);
  f64.RoundTrip(0, 2, again);
  EXPECT_EQ(again[0], wide[0]);
  EXPECT_EQ(again[1], wide[1]);
}

TEST(StateCodecTest, EveryBF16IsKept) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto kept = static_cast<uint16_t>(bits);
    float value = 0;
    kRounded.Decode(0, 1, &kept, nullptr, &value);
    EXPECT_EQ(std::bit_cast<uint32_t>(value), bits << 16);
    uint16_t again = 0;
    kRounded.Encode(0, 1, &value, &again, nullptr);
    // A signalling not-a-number becomes quiet.
    EXPECT_EQ(again, std::isnan(value) ? bits | 0x40 : bits);
  }
  EXPECT_EQ(Bits(RoundTripped(kRounded, 0,
                              {1.00390625F, 1.01171875F, -0.0F, kInf, 3.4e38F,
                               std::bit_cast<float>(0x7F800001U)})),
            (std::vector<uint32_t>{0x3F800000, 0x3F820000, 0x80000000,
                                   0x7F800000, 0x7F800000, 0x7FC00000}));
}

// Wherever the first value lies in its block, and whatever the count.
TEST(StateCodecTest, BlocksOf8BitsAreCutAtMultiplesOfTheSlab) {
  std::mt19937_64 random(1);
  for (const StateCodec& codec : {kSigned8, kUnsigned8}) {
    for (int64_t begin = 0; begin < kBlock8; ++begin) {
      const int64_t element = begin + kBlock8 * static_cast<int64_t>(begin % 3);
      const size_t count = 1 + random() % 700;
      const std::vector<float> values =
          AnyValues(random, count, codec.is_signed);
      const Stored stored = Encoded(codec, element, values);
      const std::vector<float> kept = Decoded(codec, element, stored);
      for (size_t i = 0; i < count; ++i) {
        const int64_t block = (begin + static_cast<int64_t>(i)) / kBlock8;
        const int64_t first = std::max<int64_t>(block * kBlock8 - begin, 0);
        const auto last = std::min(static_cast<int64_t>(count),
                                   (block + 1) * kBlock8 - begin);
        float scale = 0;
        for (int64_t j = first; j < last; ++j) {
          scale = std::max(scale, std::abs(At(values, j)));
        }
        EXPECT_EQ(At(stored.scales, block), scale);
        EXPECT_LE(std::abs(kept[i] - values[i]), scale * 0.04F);
        if (std::abs(values[i]) == scale) {
          EXPECT_EQ(std::abs(kept[i]), scale);
        }
      }
      // A part of it is read like the whole.
      const auto from = static_cast<int64_t>(random() % count);
      std::vector<float> part(count - static_cast<size_t>(from));
      codec.Decode(element + from, static_cast<int64_t>(part.size()),
                   stored.bytes.data() + from,
                   stored.scales.data() + (begin + from) / kBlock8,
                   part.data());
      EXPECT_EQ(Bits(part),
                Bits(std::vector<float>(kept.begin() + from, kept.end())));
    }
  }
}

TEST(StateCodecTest, WhatWasReadIsWrittenTheSame) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 2000; ++round) {
    for (const StateCodec& codec : {kSigned8, kUnsigned8, kRounded}) {
      const auto element = static_cast<int64_t>(random() % 1000);
      const std::vector<float> values =
          AnyValues(random, random() % 600, codec.is_signed);
      const Stored stored = Encoded(codec, element, values);
      const std::vector<float> kept = Decoded(codec, element, stored);
      EXPECT_EQ(Encoded(codec, element, kept), stored);
      EXPECT_EQ(Bits(RoundTripped(codec, element, values)), Bits(kept));
      EXPECT_EQ(Bits(RoundTripped(codec, element, kept)), Bits(kept));
    }
  }
}

// A block without a usable scale is zeros; its neighbours are not touched.
TEST(StateCodecTest, BlocksThatHaveNoScale) {
  for (const StateCodec& codec : {kSigned8, kUnsigned8}) {
    std::vector<float> values(3 * kBlock8, 2.0F);
    for (size_t i = 256; i < 512; ++i) values[i] = 1e-40F;
    values[700] = kInf;
    const Stored stored = Encoded(codec, 0, values);
    EXPECT_EQ(stored.scales, (std::vector<float>{2, 0, 0}));
    const std::vector<float> kept = Decoded(codec, 0, stored);
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(kept[i], i < 256 ? 2.0F : 0.0F) << i;
    }
    const Stored again = Encoded(codec, 0, kept);
    EXPECT_EQ(again.scales, stored.scales);
    EXPECT_EQ(Bits(Decoded(codec, 0, again)), Bits(kept));
  }
}

TEST(StateCodecTest, OddNumbersAmongOthersOf8Bits) {
  const std::vector<float> kept =
      RoundTripped(kSigned8, 5, {kNan, -0.0F, 1, -1, 1e-30F});
  EXPECT_FALSE(std::isnan(kept[0]));  // there is no code for it
  EXPECT_LE(std::abs(kept[0]), 1);
  EXPECT_EQ(Bits({kept.begin() + 1, kept.end()}),
            Bits({0.0F, 1.0F, -1.0F, 0.0F}));
}

TEST(StateCodecTest, WeightsAreTheNearest) {
  const std::vector<float> exact = {1.00390625F, 1.01171875F, -0.0F, kInf,
                                    3.4e38F};
  std::vector<uint16_t> weights(exact.size());
  EncodeWeights(exact, weights.data(), nullptr);
  EXPECT_EQ(weights,
            (std::vector<uint16_t>{0x3F80, 0x3F82, 0x8000, 0x7F80, 0x7F80}));
  std::vector<float> kept(exact.size());
  DecodeWeights(weights.data(), nullptr, kept);
  EXPECT_EQ(Bits(kept),
            (std::vector<uint32_t>{0x3F800000, 0x3F820000, 0x80000000,
                                   0x7F800000, 0x7F800000}));
}

TEST(StateCodecTest, SplitWeightsAreExact) {
  std::mt19937_64 random(3);
  std::vector<float> exact = {0,    -0.0F,   kInf,     -kInf,      1e-45F,
                              kNan, 3.4e38F, -3.4e38F, 1.00390625F};
  while (exact.size() < 100'000) {
    exact.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  }
  std::vector<uint16_t> weights(exact.size()), low(exact.size());
  EncodeWeights(exact, weights.data(), low.data());
  std::vector<float> kept(exact.size());
  DecodeWeights(weights.data(), low.data(), kept);
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(weights[i], SplitMaster::Of(exact[i]).weight);
    if (std::isnan(exact[i])) {
      EXPECT_TRUE(std::isnan(kept[i]));
      continue;
    }
    EXPECT_EQ(std::bit_cast<uint32_t>(kept[i]),
              std::bit_cast<uint32_t>(exact[i]));
  }
}

}  // namespace
}  // namespace delink::state_codec_test
