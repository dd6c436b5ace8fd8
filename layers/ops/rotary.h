// Rotary position embedding (Su et al., "RoFormer", 2021), in place on the
// packed projection that attention takes.
//
// No table is kept: a kernel makes the sines and cosines of a token once for
// all its heads and all samples, from the frequencies, which are host memory.
#pragma once

#include <cstdint>

#include "framework/autograd/tape.h"
#include "layers/kernels/arguments.h"

namespace delink::ops {

// Frequencies of the contexts that models were stretched to.
enum class RotaryScaling : uint8_t {
  kNone,
  kLinear,  // positions / factor (Chen et al., 2023)
  kNtk,     // base * factor^(dim / (dim - 2))
  kLlama3,  // as Llama 3.1: long waves / factor, short ones kept, a ramp
            // between
};

struct RotaryConfig {
  int64_t dim = 0;  // elements of a head that are rotated, the first ones:
                    // even, at most 2 kMaxRotaryPairs, for kNtk more than 2
  double base = 10'000;
  RotaryPairing pairing = RotaryPairing::kHalf;
  RotaryScaling scaling = RotaryScaling::kNone;
  double factor = 1;
  // Of kLlama3: waves of more than original_length / low_freq_factor tokens are
  // long, those of less than original_length / high_freq_factor short.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_length = 8192;
};

// Pair i turns by base^(-2 i / dim) a token, scaled.
RotaryAngles RotaryFrequencies(const RotaryConfig& config);

// qkv [B, T, (H + 2 Hkv) Dh], packed as CausalAttention takes it: queries and
// keys turn, token t by its position inputs().first_position + t, or that in
// inputs().positions. The result is in qkv's memory, whose old value is gone:
// qkv must be an op's output that nobody else reads or saves. `angles` must
// outlive the visit.
Var Rotary(Var qkv, int64_t heads, int64_t kv_heads,
           const RotaryAngles& angles);

}  // namespace delink::ops
