// Memory that kernels on a CUDA device use themselves. This header needs no
// CUDA, so that plans can count this memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace delink::cuda {

// The bytes of each stream's scratch.
inline constexpr int64_t kScratchBytes = int64_t{32} << 20;

// The most dynamic shared memory of a thread block: two such blocks still fit
// into a multiprocessor of 228 KiB, and one into 164 KiB.
inline constexpr int64_t kMostSharedBytes = int64_t{100} << 10;

// Its name in the ledger.
inline std::string ScratchName(std::string_view stream) {
  return "scratch of stream " + std::string(stream);
}

}  // namespace delink::cuda
