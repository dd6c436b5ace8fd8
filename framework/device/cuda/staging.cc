#include "framework/device/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "framework/device/cuda/check.h"

namespace delink::cuda {
namespace {

constexpr int64_t kUnit = 64;  // of places in the ring: a cache line

int64_t RoundUp(int64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

}  // namespace

Staging::Staging(MemoryLedger& ledger) : ledger_(ledger) {
  void* memory = nullptr;
  DELINK_CUDA_CHECK(cudaHostAlloc(
      &memory, static_cast<size_t>(kSegments * kSegment + kLanding),
      cudaHostAllocPortable));
  memory_ = static_cast<char*>(memory);
  ledger_.Take(memory_, kSegments * kSegment, "staging rings");
  ledger_.Take(memory_ + kSegments * kSegment, kLanding, "landing zones");
  for (cudaEvent_t& event : left_) {
    DELINK_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
}

Staging::~Staging() {
  for (const cudaEvent_t event : left_) {
    DELINK_CUDA_CHECK(cudaEventDestroy(event));
  }
  ledger_.Give(memory_);
  ledger_.Give(memory_ + kSegments * kSegment);
  DELINK_CUDA_CHECK(cudaFreeHost(memory_));
}

void Staging::ToDevice(cudaStream_t stream, void* device, const void* host,
                       int64_t bytes) {
  auto* to = static_cast<char*>(device);
  const auto* from = static_cast<const char*>(host);
  while (bytes > 0) {
    const int64_t segment = next_ / kSegment, used = next_ % kSegment;
    if (used == 0) DELINK_CUDA_CHECK(cudaEventSynchronize(left_[segment]));
    const int64_t count = std::min(bytes, kSegment - used);
    std::memcpy(memory_ + next_, from, static_cast<size_t>(count));
    DELINK_CUDA_CHECK(cudaMemcpyAsync(to, memory_ + next_,
                                      static_cast<size_t>(count),
                                      cudaMemcpyDefault, stream));
    to += count;
    from += count;
    bytes -= count;
    next_ += RoundUp(count);
    if (next_ % kSegment == 0) {
      DELINK_CUDA_CHECK(cudaEventRecord(left_[segment], stream));
      next_ %= kSegments * kSegment;
    }
  }
}

bool Staging::ToHost(cudaStream_t stream, void* host, const void* device,
                     int64_t bytes) {
  if (bytes > kLanding - landed_) return false;
  const int64_t offset = kSegments * kSegment + landed_;
  DELINK_CUDA_CHECK(cudaMemcpyAsync(memory_ + offset, device,
                                    static_cast<size_t>(bytes),
                                    cudaMemcpyDefault, stream));
  arrivals_.push_back({host, offset, bytes});
  landed_ = std::min(kLanding, landed_ + RoundUp(bytes));
  return true;
}

void Staging::DeliverToHost() {
  for (const Arrival& a : arrivals_) {
    std::memcpy(a.host, memory_ + a.offset, static_cast<size_t>(a.bytes));
  }
  Forget();
}

}  // namespace delink::cuda
