// Converts on the host between exact values and the forms in which a store
// keeps them: the optimizer's state, and bf16 weights with the low halves of a
// split master. These forms are defined here alone.
//
// Decoding and encoding again gives the same bits, with two exceptions that
// change no number: a signalling bf16 NaN becomes quiet; and if a block was
// written with an infinite value, so that it reads as zeros, its codes become
// zero.
#pragma once

#include <cstdint>
#include <span>

#include "framework/module/state_storage.h"
#include "framework/tensor/dtype.h"

namespace delink {

// The form of one parameter's state. `element` is the position of the first
// value in its slab: 8-bit blocks are cut at multiples of kBlock8 elements of
// the slab. `scales` begin with the scale of the block that holds this value.
struct StateCodec {
  StateStorage storage = StateStorage::kExact;
  bool is_signed = true;      // kBlock8: values may be below zero
  DType exact = DType::kF32;  // of values; always kF32 for kBF16 and kBlock8

  // To exact values. Blocks need not be whole.
  void Decode(int64_t element, int64_t count, const void* stored,
              const float* scales, void* values) const;
  // From exact values. A block that they have only in part is encoded as if it
  // were that part. `scales` gets ScalesOf(element, element + count) values.
  void Encode(int64_t element, int64_t count, const void* values, void* stored,
              float* scales) const;
  // Replaces values by what would be read back once they are written.
  void RoundTrip(int64_t element, int64_t count, void* values) const;

  friend bool operator==(const StateCodec&, const StateCodec&) = default;
};

// Converts exact parameters to bf16 weights and, unless `low` is null, their
// low halves (tensor/master.h). Without low halves a weight is rounded to the
// nearest, ties to even. All have exact.size() values.
void EncodeWeights(std::span<const float> exact, uint16_t* weights,
                   uint16_t* low);
void DecodeWeights(const uint16_t* weights, const uint16_t* low,
                   std::span<float> exact);

}  // namespace delink
