// What each stream of a CUDA device has for its kernels; known without CUDA, so
// that plans count it.
#pragma once

#include <cstdint>

namespace delink::cuda {

inline constexpr int64_t kScratchBytes = int64_t{32} << 20;

}  // namespace delink::cuda
