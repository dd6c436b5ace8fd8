// What kernels on a CUDA device have for themselves; known without CUDA, so
// that plans count it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace delink::cuda {

// Each stream of them.
inline constexpr int64_t kScratchBytes = int64_t{32} << 20;

// A block at most, of dynamic shared memory: two still fit into a
// multiprocessor of 228 KiB, and one into 164 KiB.
inline constexpr int64_t kMostSharedBytes = int64_t{100} << 10;

// What the ledger calls it.
inline std::string ScratchName(std::string_view stream) {
  return "scratch of stream " + std::string(stream);
}

}  // namespace delink::cuda
