// Division by a number that is known when a kernel is launched, computed as a
// product: on the device a 64-bit division is a call of a subroutine.
//
//   const Divisor heads(H);                      // on the host
//   const int64_t n = heads.Quotient(row);       // row / H, in the kernel
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace delink::cuda {

// Divides numbers from 0 on whose product with the divisor is below 2^64. With
// m = floor(2^64 / d) + 1 <= (2^64 + d) / d, a / d is a m / 2^64, rounded down
// (Granlund and Montgomery, "Division by invariant integers using
// multiplication", 1994).
class Divisor {
 public:
  // d > 0
  explicit Divisor(int64_t d)
      : multiplier_(d == 1 ? 0 : ~uint64_t{0} / static_cast<uint64_t>(d) + 1) {}
  __device__ int64_t Quotient(int64_t a) const {
    if (multiplier_ == 0) return a;
    return static_cast<int64_t>(
        static_cast<unsigned __int128>(static_cast<uint64_t>(a)) *
            multiplier_ >>
        64);
  }

 private:
  uint64_t multiplier_;
};

}  // namespace delink::cuda
