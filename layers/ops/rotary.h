// Rotary position embedding (Su et al., "RoFormer", 2021), in place on the
// packed projection that attention takes.
//
// There is no table: a kernel computes the sines and cosines of a token once
// for all heads and samples, from the frequencies, which are in host memory.
#pragma once

#include <cstdint>

#include "framework/autograd/tape.h"
#include "layers/kernels/arguments.h"

namespace delink::ops {

// How frequencies are scaled for longer contexts.
enum class RotaryScaling : uint8_t {
  kNone,
  kLinear,  // positions / factor (Chen et al., 2023)
  kNtk,     // base * factor^(dim / (dim - 2))
  kLlama3,  // as Llama 3.1: low frequencies / factor, high ones unchanged, a
            // ramp between
};

struct RotaryConfig {
  int64_t dim = 0;  // elements of a head that are rotated, the first ones:
                    // even, at most 2 kMaxRotaryPairs, for kNtk more than 2
  double base = 10'000;
  RotaryPairing pairing = RotaryPairing::kHalf;
  RotaryScaling scaling = RotaryScaling::kNone;
  double factor = 1;
  // For kLlama3: a frequency is low if its wavelength is more than
  // original_length / low_freq_factor tokens, and high if it is less than
  // original_length / high_freq_factor.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_length = 8192;
};

// Pair i rotates by base^(-2 i / dim) a token, scaled.
RotaryAngles RotaryFrequencies(const RotaryConfig& config);

// Rotates the queries and keys of qkv [B, T, (H + 2 Hkv) Dh], packed as for
// CausalAttention. Token t has the position inputs().first_position + t, or the
// one in inputs().positions. The result overwrites qkv, so qkv must be an op's
// output that nothing else reads or saves. `angles` must outlive the visit.
Var Rotary(Var qkv, int64_t heads, int64_t kv_heads,
           const RotaryAngles& angles);

}  // namespace delink::ops
