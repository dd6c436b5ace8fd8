// How fast this machine multiplies matrices: the speed of light that training
// speed is quoted against.
#pragma once

namespace delink {

// FLOP/s of an f32 matmul of a size that suits the caches, on this process's
// threads: the best of a few short runs (about 50 ms in all).
double MeasureMatmulPeak();

}  // namespace delink
