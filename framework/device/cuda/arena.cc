#include "framework/device/cuda/arena.h"

#include <limits>

#include "framework/device/cuda/check.h"

namespace delink::cuda {

Arena::Arena(int ordinal) {
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = ordinal;
  DELINK_CUDA_CHECK(cudaMemPoolCreate(&pool_, &props));
  // Nothing goes back to the driver unless it is trimmed.
  uint64_t kept = std::numeric_limits<uint64_t>::max();
  DELINK_CUDA_CHECK(
      cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &kept));
  DELINK_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

Arena::~Arena() {
  DELINK_CUDA_CHECK(cudaStreamDestroy(stream_));
  DELINK_CUDA_CHECK(cudaMemPoolDestroy(pool_));
}

bool Arena::Take(int64_t bytes, void** address) {
  const auto take = [&] {
    return cudaMallocFromPoolAsync(address, static_cast<size_t>(bytes), pool_,
                                   stream_);
  };
  cudaError_t error = take();
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // or a later call would report it again
    Trim();
    error = take();
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return false;
    }
  }
  DELINK_CUDA_CHECK(error);
  DELINK_CUDA_CHECK(cudaStreamSynchronize(stream_));
  return true;
}

void Arena::Give(void* address) {
  DELINK_CUDA_CHECK(cudaDeviceSynchronize());
  DELINK_CUDA_CHECK(cudaFreeAsync(address, stream_));
  DELINK_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

void Arena::Trim() { DELINK_CUDA_CHECK(cudaMemPoolTrimTo(pool_, 0)); }

int64_t Arena::Get(cudaMemPoolAttr attribute) const {
  uint64_t bytes = 0;
  DELINK_CUDA_CHECK(cudaMemPoolGetAttribute(pool_, attribute, &bytes));
  return static_cast<int64_t>(bytes);
}

}  // namespace delink::cuda
