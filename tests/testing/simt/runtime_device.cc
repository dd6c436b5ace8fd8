// What the CUDA runtime says of devices, functions and errors, on the emulated
// device.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/testing/simt/machine.h"
#include "tests/testing/simt/runtime.h"

namespace delink::simt {
namespace {

thread_local cudaError_t t_last_error = cudaSuccess;
thread_local int t_device = 0;

constexpr int kSharedBytes = 227 << 10;
constexpr int kCacheBytes = 1 << 20;

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice",
     "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice",
     "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle",
     "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
};

const ErrorText* Find(cudaError_t error) {
  const auto* const found =
      std::find_if(std::begin(kErrors), std::end(kErrors),
                   [=](const ErrorText& text) { return text.error == error; });
  return found == std::end(kErrors) ? nullptr : found;
}

}  // namespace

cudaError_t Fail(cudaError_t error) {
  // Not an error, says the runtime.
  if (error != cudaErrorNotReady) t_last_error = error;
  return error;
}

cudaError_t Ready() {
  const Options& options = CurrentOptions();
  if (options.driver_version < CUDART_VERSION / 1000 * 1000) {
    return Fail(cudaErrorInsufficientDriver);
  }
  return options.devices == 0 ? Fail(cudaErrorNoDevice) : cudaSuccess;
}

}  // namespace delink::simt

using delink::simt::CurrentOptions;
using delink::simt::Fail;
using delink::simt::Ready;

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (const auto e = Ready(); e != cudaSuccess) return e;
  *count = CurrentOptions().devices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  if (device < 0 || device >= CurrentOptions().devices) {
    return Fail(cudaErrorInvalidDevice);
  }
  delink::simt::t_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = delink::simt::t_device;
  return Ready();
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CurrentOptions().driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  const delink::simt::Options& options = CurrentOptions();
  if (device < 0 || device >= options.devices) {
    return Fail(cudaErrorInvalidDevice);
  }
  cudaDeviceProp& p = *properties;
  std::memset(static_cast<void*>(properties), 0, sizeof p);
  std::strcpy(p.name, "emulated device");
  p.totalGlobalMem = static_cast<size_t>(options.memory_bytes);
  p.sharedMemPerBlock = 48 << 10;
  p.sharedMemPerBlockOptin = delink::simt::kSharedBytes;
  p.sharedMemPerMultiprocessor = 228 << 10;
  p.regsPerBlock = 65536;
  p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 0x7FFFFFFF;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.major = options.major;
  p.minor = options.minor;
  p.multiProcessorCount = options.multiprocessors;
  p.l2CacheSize = delink::simt::kCacheBytes;
  p.unifiedAddressing = 1;
  p.canMapHostMemory = 1;
  p.concurrentKernels = 1;
  p.asyncEngineCount = 2;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                   int device) {
  cudaDeviceProp p;
  const cudaError_t error = cudaGetDeviceProperties(&p, device);
  if (error != cudaSuccess) return error;
  const std::pair<cudaDeviceAttr, int> known[] = {
      {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
      {cudaDevAttrComputeCapabilityMajor, p.major},
      {cudaDevAttrComputeCapabilityMinor, p.minor},
      {cudaDevAttrL2CacheSize, p.l2CacheSize},
      {cudaDevAttrWarpSize, p.warpSize},
      {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
      {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, delink::simt::kSharedBytes},
      {cudaDevAttrCanMapHostMemory, 1},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrMemoryPoolsSupported, CurrentOptions().memory_pools ? 1 : 0},
  };
  for (const auto& [name, answer] : known) {
    if (name == attribute) {
      *value = answer;
      return cudaSuccess;
    }
  }
  return Fail(cudaErrorInvalidValue);
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute attribute,
                                 int value) {
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize &&
      value > delink::simt::kSharedBytes) {
    return Fail(cudaErrorInvalidValue);
  }
  return Ready();
}

cudaError_t cudaGetLastError() {
  return std::exchange(delink::simt::t_last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() { return delink::simt::t_last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  const auto* const found = delink::simt::Find(error);
  return found == nullptr ? "unrecognized error code" : found->name;
}
const char* cudaGetErrorString(cudaError_t error) {
  const auto* const found = delink::simt::Find(error);
  return found == nullptr ? "unrecognized error code" : found->text;
}
