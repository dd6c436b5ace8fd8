#include "framework/module/state_codec.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "framework/base/check.h"
#include "framework/module/state_layout.h"
#include "framework/tensor/bfloat16.h"
#include "framework/tensor/block8.h"
#include "framework/tensor/master.h"

namespace delink {
namespace {

// Cuts `count` values, the first of which is element `element` of a slab, at
// the ends of 8-bit blocks. Calls visit(first, last, block) for each piece;
// block 0 is the one that holds the first value.
template <typename Visit>
void ForEachBlock8(int64_t element, int64_t count, Visit visit) {
  size_t block = 0;
  for (int64_t first = 0; first < count; ++block) {
    const int64_t end = (element + first) / kBlock8 * kBlock8 + kBlock8;
    const int64_t last = std::min(count, end - element);
    visit(static_cast<size_t>(first), static_cast<size_t>(last), block);
    first = last;
  }
}

}  // namespace

void StateCodec::Decode(int64_t element, int64_t count, const void* stored,
                        const float* scales, void* values) const {
  if (storage == StateStorage::kExact) {
    std::memcpy(values, stored, static_cast<size_t>(count * SizeOf(exact)));
    return;
  }
  DELINK_CHECK(exact == DType::kF32);
  auto* const out = static_cast<float*>(values);
  if (storage == StateStorage::kBF16) {
    DecodeWeights(static_cast<const uint16_t*>(stored), nullptr,
                  {out, static_cast<size_t>(count)});
    return;
  }
  const auto* const codes = static_cast<const uint8_t*>(stored);
  const auto& fractions = is_signed ? kSignedFractions8 : kUnsignedFractions8;
  ForEachBlock8(element, count, [&](size_t begin, size_t end, size_t block) {
    for (size_t i = begin; i < end; ++i) {
      out[i] = fractions[codes[i]] * scales[block];
    }
  });
}

void StateCodec::Encode(int64_t element, int64_t count, const void* values,
                        void* stored, float* scales) const {
  if (storage == StateStorage::kExact) {
    std::memcpy(stored, values, static_cast<size_t>(count * SizeOf(exact)));
    return;
  }
  DELINK_CHECK(exact == DType::kF32);
  const auto* const in = static_cast<const float*>(values);
  if (storage == StateStorage::kBF16) {
    EncodeWeights({in, static_cast<size_t>(count)},
                  static_cast<uint16_t*>(stored), nullptr);
    return;
  }
  auto* const codes = static_cast<uint8_t*>(stored);
  ForEachBlock8(element, count, [&](size_t begin, size_t end, size_t block) {
    scales[block] = Encode8(is_signed, in + begin, end - begin, codes + begin);
  });
}

void StateCodec::RoundTrip(int64_t element, int64_t count, void* values) const {
  if (storage == StateStorage::kExact) return;
  std::vector<char> stored(static_cast<size_t>(count * SizeOf(storage, exact)));
  std::vector<float> scales(
      static_cast<size_t>(ScalesOf(element, element + count)));
  Encode(element, count, values, stored.data(), scales.data());
  Decode(element, count, stored.data(), scales.data(), values);
}

void EncodeWeights(std::span<const float> exact, uint16_t* weights,
                   uint16_t* low) {
  const auto count = static_cast<int64_t>(exact.size());
  const float* const values = exact.data();
#pragma omp parallel for schedule(static) if (count > 65536)
  for (int64_t i = 0; i < count; ++i) {
    if (low == nullptr) {
      weights[i] = BFloat16(values[i]).bits;
      continue;
    }
    const SplitMaster split = SplitMaster::Of(values[i]);
    weights[i] = split.weight;
    low[i] = split.low;
  }
}

void DecodeWeights(const uint16_t* weights, const uint16_t* low,
                   std::span<float> exact) {
  for (size_t i = 0; i < exact.size(); ++i) {
    exact[i] = low == nullptr ? BFloat16::FromBits(weights[i])
                              : SplitMaster{weights[i], low[i]}.Value();
  }
}

}  // namespace delink
