// What each stream of a CUDA device has for its kernels; known without CUDA, so
// that plans count it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace delink::cuda {

inline constexpr int64_t kScratchBytes = int64_t{32} << 20;

// What the ledger calls it.
inline std::string ScratchName(std::string_view stream) {
  return "scratch of stream " + std::string(stream);
}

}  // namespace delink::cuda
