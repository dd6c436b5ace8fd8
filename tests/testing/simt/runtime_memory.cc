// The CUDA runtime's memory, on the emulated device.
//
// What it leaves open is used against the program: a copy from pinned memory
// reads it as late as it may, a copy to pageable memory fills it with a pattern
// at once and with what was copied late, a new allocation holds NaN.
#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "framework/base/mutex.h"
#include "tests/testing/simt/machine.h"
#include "tests/testing/simt/runtime.h"
#include "tests/testing/simt/shadow.h"

namespace {

using delink::simt::Fail;
using delink::simt::Machine;
using delink::simt::Memory;
using delink::simt::Ready;
using delink::simt::TheMachine;
using delink::simt::Way;

uintptr_t Number(const void* address) {
  return reinterpret_cast<uintptr_t>(address);
}

enum class Place { kDevice, kPinned, kPageable };
Place PlaceOf(const void* address) {
  const Memory& memory = TheMachine().memory();
  return memory.IsDevice(address)   ? Place::kDevice
         : memory.IsPinned(address) ? Place::kPinned
                                    : Place::kPageable;
}

// Whether the runtime takes the addresses for what `kind` says they are; pinned
// memory is either.
bool Fits(cudaMemcpyKind kind, Place to, Place from) {
  const bool to_host =
      kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
  const bool from_host =
      kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
  if (kind == cudaMemcpyDefault) return true;
  return to != (to_host ? Place::kDevice : Place::kPageable) &&
         from != (from_host ? Place::kDevice : Place::kPageable);
}

cudaError_t Allocate(void** address, size_t bytes, bool pinned) {
  if (address == nullptr) return Fail(cudaErrorInvalidValue);
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  Machine& machine = TheMachine();
  const delink::MutexLock lock(machine.mutex());
  ++machine.resources_made();
  *address = machine.memory().Allocate(
      static_cast<int64_t>(bytes), pinned,
      machine.options().memory_bytes - machine.pools().idle());
  return *address == nullptr ? Fail(cudaErrorMemoryAllocation) : cudaSuccess;
}

void Copy(void* to, const void* from, int64_t bytes) {
  const Place target = PlaceOf(to), source = PlaceOf(from);
  if (source != Place::kPageable) {
    delink::simt::CheckCopyRead(Number(from), bytes);
  }
  if (target != Place::kPageable) {
    delink::simt::CheckCopyWrite(Number(to), bytes);
  }
  std::memmove(to, from, static_cast<size_t>(bytes));
  if (target == Place::kDevice && source == Place::kDevice) {
    delink::simt::CopyWritten(Number(to), Number(from), bytes);
  }
}

cudaError_t EnqueueCopy(CUstream_st* stream, void* to, const void* from,
                        size_t bytes) {
  const auto count = static_cast<int64_t>(bytes);
  std::function<void()> run = [=] { Copy(to, from, count); };
  if (PlaceOf(from) == Place::kPageable) {
    const auto* const first = static_cast<const unsigned char*>(from);
    auto staged =
        std::make_shared<std::vector<unsigned char>>(first, first + bytes);
    run = [=] { Copy(to, staged->data(), count); };
  }
  if (PlaceOf(to) == Place::kPageable) std::memset(to, 0xFF, bytes);
  const bool to_device = PlaceOf(to) == Place::kDevice;
  const bool from_device = PlaceOf(from) == Place::kDevice;
  TheMachine().Enqueue(stream, {.name = "copy",
                                .run = std::move(run),
                                .bytes = count,
                                .way = to_device == from_device ? Way::kNone
                                       : to_device              ? Way::kToDevice
                                                   : Way::kToHost});
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaMalloc(void** address, size_t bytes) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  return Allocate(address, bytes, false);
}
cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  return Allocate(address, bytes, false);
}
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  return Allocate(address, bytes, true);
}
cudaError_t cudaMallocHost(void** address, size_t bytes) {
  return cudaHostAlloc(address, bytes, cudaHostAllocDefault);
}

// Memory that is pinned after it was taken is not emulated.
cudaError_t cudaHostRegister(void*, size_t, unsigned) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  return Fail(cudaErrorNotSupported);
}
cudaError_t cudaHostUnregister(void*) { return Fail(cudaErrorInvalidValue); }

// Waits for the whole device, as the runtime does.
cudaError_t cudaFree(void* address) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  if (address == nullptr) return cudaSuccess;
  Machine& machine = TheMachine();
  const delink::MutexLock lock(machine.mutex());
  machine.WaitForAll();
  machine.pools().Forget(address);
  return machine.memory().Free(address, false) ? cudaSuccess
                                               : Fail(cudaErrorInvalidValue);
}

cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  Machine& machine = TheMachine();
  const delink::MutexLock lock(machine.mutex());
  CUstream_st* const found = machine.Find(stream);
  if (found == nullptr) return Fail(cudaErrorInvalidResourceHandle);
  if (!machine.memory().IsLive(Number(address), 1)) {
    return Fail(cudaErrorInvalidValue);
  }
  machine.Enqueue(found, {.name = "free", .run = [&machine, address] {
                            machine.pools().Forget(address);
                            machine.memory().Free(address, false);
                          }});
  return cudaSuccess;
}

// Does not wait: who frees what a copy still needs is told.
cudaError_t cudaFreeHost(void* address) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  if (address == nullptr) return cudaSuccess;
  Machine& machine = TheMachine();
  const delink::MutexLock lock(machine.mutex());
  return machine.memory().Free(address, true) ? cudaSuccess
                                              : Fail(cudaErrorInvalidValue);
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  if (PlaceOf(host) != Place::kPinned) return Fail(cudaErrorInvalidValue);
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  Machine& machine = TheMachine();
  const delink::MutexLock lock(machine.mutex());
  const int64_t all = machine.options().memory_bytes;
  *total = static_cast<size_t>(all);
  *free = static_cast<size_t>(all - machine.memory().bytes_in_use() -
                              machine.pools().idle());
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                     const void* address) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  Machine& machine = TheMachine();
  const delink::MutexLock lock(machine.mutex());
  *attributes = {};
  if (!machine.memory().IsLive(Number(address), 1)) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->hostPointer = const_cast<void*>(address);
    return cudaSuccess;
  }
  const bool pinned = PlaceOf(address) == Place::kPinned;
  attributes->type = pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->devicePointer = const_cast<void*>(address);
  attributes->hostPointer = pinned ? const_cast<void*>(address) : nullptr;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  Machine& machine = TheMachine();
  const delink::MutexLock lock(machine.mutex());
  CUstream_st* const found = machine.Find(stream);
  if (found == nullptr) return Fail(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  if (!Fits(kind, PlaceOf(to), PlaceOf(from))) {
    return Fail(cudaErrorInvalidValue);
  }
  return EnqueueCopy(found, to, from, bytes);
}

// Between places of the device alone, which is all that Delink asks for.
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                              size_t from_pitch, size_t bytes, size_t rows,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  Machine& machine = TheMachine();
  const delink::MutexLock lock(machine.mutex());
  CUstream_st* const found = machine.Find(stream);
  if (found == nullptr) return Fail(cudaErrorInvalidResourceHandle);
  if (bytes > to_pitch || bytes > from_pitch) {
    return Fail(cudaErrorInvalidPitchValue);
  }
  if (bytes == 0 || rows == 0) return cudaSuccess;
  if ((kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault) ||
      !Fits(kind, PlaceOf(to), PlaceOf(from))) {
    return Fail(cudaErrorInvalidValue);
  }
  auto run = [=] {
    for (size_t row = 0; row < rows; ++row) {
      Copy(static_cast<char*>(to) + row * to_pitch,
           static_cast<const char*>(from) + row * from_pitch,
           static_cast<int64_t>(bytes));
    }
  };
  machine.Enqueue(found, {.name = "copy of rows", .run = std::move(run)});
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes,
                       cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error;
}

cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes,
                            cudaStream_t stream) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  Machine& machine = TheMachine();
  const delink::MutexLock lock(machine.mutex());
  CUstream_st* const found = machine.Find(stream);
  if (found == nullptr) return Fail(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  if (PlaceOf(address) == Place::kPageable) return Fail(cudaErrorInvalidValue);
  auto run = [=] {
    delink::simt::CheckCopyWrite(Number(address), static_cast<int64_t>(bytes));
    std::memset(address, value, bytes);
  };
  machine.Enqueue(found, {.name = "fill", .run = std::move(run)});
  return cudaSuccess;
}

cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  return cudaMemsetAsync(address, value, bytes, nullptr);
}
