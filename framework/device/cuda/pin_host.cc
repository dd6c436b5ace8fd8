#include "framework/device/cuda/pin_host.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <thread>

#include "framework/base/thread_pool.h"
#include "framework/device/cuda/check.h"
#include "framework/device/huge_pages.h"

namespace delink::cuda {
namespace {

constexpr int64_t kPage = 4096;
// The driver allocates and pins smaller blocks, which is as fast.
constexpr int64_t kTouchedFrom = 32 * kHugePage;
constexpr unsigned kMostThreads = 32;

// Touches memory for the first time, so that the system allocates its pages.
void TouchPages(void* memory, int64_t bytes) {
  auto* const begin = static_cast<volatile char*>(memory);
  const unsigned cores = std::thread::hardware_concurrency();
  ThreadPool pool(static_cast<int>(std::clamp(cores, 1U, kMostThreads)));
  pool.ParallelFor(bytes / kHugePage, [&](int64_t i) {
    for (int64_t at = i * kHugePage; at < (i + 1) * kHugePage; at += kPage) {
      begin[at] = 0;
    }
  });
}

HostMemory PinHugePages(int64_t bytes) {
  const int64_t size = AlignUp(bytes, kHugePage);
  HostMemory memory = AllocateHugePages(size);
  if (memory == nullptr) return nullptr;
  TouchPages(memory.get(), size);
  if (cudaHostRegister(memory.get(), static_cast<size_t>(size),
                       cudaHostRegisterPortable) != cudaSuccess) {
    (void)cudaGetLastError();  // or a later call would report it again
    return nullptr;
  }
  const auto free = memory.get_deleter();
  return {memory.release(), [free](void* address) {
            DELINK_CUDA_CHECK(cudaHostUnregister(address));
            free(address);
          }};
}

}  // namespace

HostMemory PinHost(int64_t bytes) {
  if (bytes >= kTouchedFrom) {
    HostMemory memory = PinHugePages(bytes);
    if (memory != nullptr) return memory;
  }
  void* memory = nullptr;
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  if (cudaHostAlloc(&memory, size, cudaHostAllocPortable) != cudaSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  return {memory,
          [](void* address) { DELINK_CUDA_CHECK(cudaFreeHost(address)); }};
}

}  // namespace delink::cuda
