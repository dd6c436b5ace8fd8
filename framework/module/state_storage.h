// How a value of an optimizer's state is stored: for CUDA's files too.
#pragma once

#include <cstdint>

namespace delink {

enum class StateStorage : uint8_t {
  kExact,   // f32; f64 where the weights are
  kBF16,    // rounded stochastically by whoever updates it
  kBlock8,  // 8 bits a value and an f32 a block: framework/tensor/block8.h
};

}  // namespace delink
