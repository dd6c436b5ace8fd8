// The CUDA runtime's memory pools, on the emulated device.
#include <cuda_runtime_api.h>

#include "framework/base/mutex.h"
#include "tests/testing/simt/machine.h"
#include "tests/testing/simt/runtime.h"

namespace {

using delink::simt::Fail;
using delink::simt::Machine;
using delink::simt::Pools;
using delink::simt::Ready;
using delink::simt::TheMachine;

// Calls `f` with the machine, locked, if the pool is one.
template <typename F>
cudaError_t WithPool(cudaMemPool_t pool, F f) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  Machine& machine = TheMachine();
  const delink::MutexLock lock(machine.mutex());
  if (!machine.pools().Has(pool)) return Fail(cudaErrorInvalidValue);
  return f(machine);
}

}  // namespace

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool,
                              const cudaMemPoolProps* props) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  if (props->allocType != cudaMemAllocationTypePinned ||
      props->location.type != cudaMemLocationTypeDevice) {
    return Fail(cudaErrorInvalidValue);
  }
  Machine& machine = TheMachine();
  const delink::MutexLock lock(machine.mutex());
  *pool = machine.pools().New();
  return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return WithPool(pool, [&](Machine& machine) {
    return machine.pools().Destroy(pool) ? cudaSuccess
                                         : Fail(cudaErrorInvalidValue);
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool,
                                    cudaMemPoolAttr attribute, void* value) {
  return WithPool(pool, [&](Machine&) {
    if (attribute != cudaMemPoolAttrReleaseThreshold) {
      return Fail(cudaErrorInvalidValue);
    }
    pool->threshold = *static_cast<uint64_t*>(value);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool,
                                    cudaMemPoolAttr attribute, void* value) {
  return WithPool(pool, [&](Machine&) {
    auto& answer = *static_cast<uint64_t*>(value);
    switch (attribute) {
      case cudaMemPoolAttrReservedMemCurrent:
        answer = static_cast<uint64_t>(pool->held);
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemHigh:
        answer = static_cast<uint64_t>(pool->most_held);
        return cudaSuccess;
      default:
        return Fail(cudaErrorInvalidValue);
    }
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
  return WithPool(pool, [&](Machine&) {
    Pools::Trim(pool, static_cast<int64_t>(keep));
    return cudaSuccess;
  });
}

cudaError_t cudaMallocFromPoolAsync(void** address, size_t bytes,
                                    cudaMemPool_t pool, cudaStream_t stream) {
  return WithPool(pool, [&](Machine& machine) {
    if (machine.Find(stream) == nullptr) {
      return Fail(cudaErrorInvalidResourceHandle);
    }
    if (bytes == 0) return Fail(cudaErrorInvalidValue);
    ++machine.resources_made();
    *address =
        machine.pools().Take(pool, static_cast<int64_t>(bytes),
                             machine.memory(), machine.options().memory_bytes);
    return *address == nullptr ? Fail(cudaErrorMemoryAllocation) : cudaSuccess;
  });
}
