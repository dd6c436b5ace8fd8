#include "layers/ops/rotary.h"

#include <cmath>
#include <numbers>

#include "layers/ops/kernels_of.h"

namespace delink::ops {
namespace {

// As Llama 3.1: depends on the wavelength in tokens.
double Llama3(double frequency, const RotaryConfig& c) {
  const double wave = 2 * std::numbers::pi / frequency;
  const auto length = static_cast<double>(c.original_length);
  if (wave < length / c.high_freq_factor) return frequency;
  if (wave > length / c.low_freq_factor) return frequency / c.factor;
  const double kept = (length / wave - c.low_freq_factor) /
                      (c.high_freq_factor - c.low_freq_factor);
  return (1 - kept) * frequency / c.factor + kept * frequency;
}

}  // namespace

RotaryAngles RotaryFrequencies(const RotaryConfig& c) {
  DELINK_CHECK(c.dim > 0 && c.dim % 2 == 0 && c.dim <= 2 * kMaxRotaryPairs)
      << c.dim << " elements";
  DELINK_CHECK(c.base > 0 && c.factor > 0);
  const auto dim = static_cast<double>(c.dim);
  double base = c.base;
  if (c.scaling == RotaryScaling::kNtk) {
    DELINK_CHECK_GT(c.dim, 2);
    base *= std::pow(c.factor, dim / (dim - 2));
  }
  if (c.scaling == RotaryScaling::kLlama3) {
    DELINK_CHECK(c.low_freq_factor > 0 &&
                 c.low_freq_factor < c.high_freq_factor &&
                 c.original_length > 0);
  }
  RotaryAngles angles{.pairing = c.pairing,
                      .pairs = static_cast<int>(c.dim / 2)};
  for (int i = 0; i < angles.pairs; ++i) {
    double& frequency = angles.inverse_frequency[i];
    frequency = std::pow(base, -2.0 * i / dim);
    if (c.scaling == RotaryScaling::kLinear) frequency /= c.factor;
    if (c.scaling == RotaryScaling::kLlama3) frequency = Llama3(frequency, c);
  }
  return angles;
}

Var Rotary(Var qkv, int64_t heads, int64_t kv_heads,
           const RotaryAngles& angles) {
  DELINK_CHECK_EQ(qkv.shape().rank(), 3);
  DELINK_CHECK(heads > 0 && kv_heads > 0);
  const int64_t row_heads = heads + 2 * kv_heads;
  DELINK_CHECK_EQ(qkv.dim(2) % row_heads, 0) << "qkv " << qkv.shape();
  DELINK_CHECK(angles.pairs <= kMaxRotaryPairs &&
               2 * angles.pairs <= qkv.dim(2) / row_heads)
      << angles.pairs << " pairs, qkv " << qkv.shape();
  Tape& tape = qkv.tape();
  const Var y = tape.Overwrite(qkv);
  RotaryArgs args{.B = qkv.dim(0),
                  .T = qkv.dim(1),
                  .Dh = qkv.dim(2) / row_heads,
                  .heads = heads + kv_heads,
                  .row = qkv.dim(2),
                  .first_position = tape.inputs().first_position,
                  .positions = tape.inputs().positions,
                  .angles = &angles,
                  .x = y.data()};
  KernelsOf(tape, qkv.dtype()).rotary(tape.stream(), args);
  tape.Record({.name = "rotary",
               .inputs = {qkv},
               .outputs = {y},
               .by_token = true,
               .input = [=](Backward& back) mutable {
                 if (!qkv.needs_grad()) return;
                 args.inverse = true;
                 args.x = back.ReuseGrad(y, qkv).data();
                 KernelsOf(qkv.tape(), qkv.dtype()).rotary(back.stream(), args);
               }});
  return y;
}

}  // namespace delink::ops
