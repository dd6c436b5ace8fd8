// How a value of an optimizer's state is stored; CUDA files include this too.
#pragma once

#include <cstdint>

namespace delink {

enum class StateStorage : uint8_t {
  kExact,   // f32; f64 if the weights are
  kBF16,    // updates round stochastically
  kBlock8,  // 8 bits a value and an f32 a block: framework/tensor/block8.h
};

}  // namespace delink
