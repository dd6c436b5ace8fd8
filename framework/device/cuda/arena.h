// The memory that Delink takes from a CUDA device: one memory pool of the
// runtime. It grows when needed, and keeps freed memory for later allocations
// until it is trimmed.
//
// The driver joins and splits free memory, but a block never spans two of the
// pool's reservations. So after many small blocks were freed, and partly taken
// again, a large block may need new memory. Therefore, after freeing most of
// the memory, trim the pool before other allocations.
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

  // False if the memory does not suffice even after a trim. Any stream may use
  // the block at once.
  bool Take(int64_t bytes, void** address);
  // Waits for all work of the device, because some may still use the block.
  void Give(void* address);
  void Trim();

  // Bytes of the device, and the most so far.
  int64_t held() const { return Get(cudaMemPoolAttrReservedMemCurrent); }
  int64_t most_held() const { return Get(cudaMemPoolAttrReservedMemHigh); }

 private:
  int64_t Get(cudaMemPoolAttr attribute) const;

  cudaMemPool_t pool_ = nullptr;
  cudaStream_t stream_ = nullptr;  // orders Take and Give
};

}  // namespace delink::cuda
