// Values as a store keeps them, on the host: the optimizer's state in its
// forms, and bf16 weights with what lies beside them. Nobody else knows how a
// form is made of exact values.
//
// What was decoded and is encoded again is the same to the bit, but for two
// that no number is at stake in: a signalling bf16 becomes quiet, and codes of
// a block that was written with an infinite value, and is read as zeros, zero.
#pragma once

#include <cstdint>
#include <span>

#include "framework/module/state_storage.h"
#include "framework/tensor/dtype.h"

namespace delink {

// Values of one parameter's state, `element` being where the first of them lies
// in its slab: blocks of 8-bit values are cut at multiples of kBlock8 there.
// Scales begin with that of the block which holds the first value.
struct StateCodec {
  StateStorage storage = StateStorage::kExact;
  bool is_signed = true;      // kBlock8: codes of values below zero, too
  DType exact = DType::kF32;  // of values; of kBF16 and kBlock8 always kF32

  // To exact values; any values of a block, and its scale.
  void Decode(int64_t element, int64_t count, const void* stored,
              const float* scales, void* values) const;
  // From exact values. A block counts as if it began and ended where they do;
  // `scales` gets ScalesOf(element, element + count).
  void Encode(int64_t element, int64_t count, const void* values, void* stored,
              float* scales) const;
  // What would be read back of values that are written.
  void RoundTrip(int64_t element, int64_t count, void* values) const;

  friend bool operator==(const StateCodec&, const StateCodec&) = default;
};

// bf16 weights of exact parameters, and, unless it is null, `low`, the halves
// that are missing (tensor/master.h). Without those a weight is the nearest,
// ties to even. Of as many values as `exact` has.
void EncodeWeights(std::span<const float> exact, uint16_t* weights,
                   uint16_t* low);
void DecodeWeights(const uint16_t* weights, const uint16_t* low,
                   std::span<float> exact);

}  // namespace delink
