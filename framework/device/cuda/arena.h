// The memory that Delink takes of a CUDA device: one pool of the runtime's,
// which grows when there is not enough in it and keeps what was freed for what
// comes next, until it is trimmed.
//
// The driver joins and cuts what is free, but a block lies in one piece of what
// it once asked for: a large block after many small ones were freed and others
// taken in their place may need new memory. So whoever frees most of it and
// then takes something else trims it in between.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace delink::cuda {

// Thread-safe. All calls are for the device `ordinal`, which must be the
// calling thread's current one.
class Arena {
 public:
  explicit Arena(int ordinal);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // False where there is not so much, also after a trim. Any stream may use it
  // at once.
  bool Take(int64_t bytes, void** address);
  // Waits for all work of the device, as somebody may still use it.
  void Give(void* address);
  void Trim();

  // Bytes of the device, and the most so far.
  int64_t held() const { return Get(cudaMemPoolAttrReservedMemCurrent); }
  int64_t most_held() const { return Get(cudaMemPoolAttrReservedMemHigh); }

 private:
  int64_t Get(cudaMemPoolAttr attribute) const;

  cudaMemPool_t pool_ = nullptr;
  cudaStream_t stream_ = nullptr;  // in whose order it is taken and given
};

}  // namespace delink::cuda
