#include "framework/device/cuda/find_devices.h"

#include <cuda_runtime_api.h>

#include <cstdlib>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/status_macros.h"
#include "framework/device/backend.h"

namespace delink {
namespace cuda {
namespace {

constexpr int kLeastMajor = 8;  // Ampere: the first with bf16
constexpr char kOnCpu[] = "; or compute on the CPU: run.device = \"cpu\"";

// A version as CUDA counts them: 13020 is 13.2.
std::string Version(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string Visible() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return "";
  return absl::StrCat(" (CUDA_VISIBLE_DEVICES is \"", visible, "\")");
}

}  // namespace

absl::Status NoDevices(int error) {
  int driver = 0, runtime = 0;
  // If a call fails, its version stays 0.
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  const auto code = static_cast<cudaError_t>(error);
  (void)cudaGetLastError();  // or the next call would report it again
  if (driver == 0) {
    return absl::UnavailableError(
        absl::StrCat("this machine has no NVIDIA driver, so no CUDA device; "
                     "install one for CUDA ",
                     Version(runtime), " or newer", kOnCpu));
  }
  if (code == cudaErrorInsufficientDriver) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the NVIDIA driver is too old: it serves CUDA ", Version(driver),
        ", but this build needs CUDA ", Version(runtime),
        "; install a newer driver, or build Delink with CUDA ", Version(driver),
        kOnCpu));
  }
  if (code == cudaErrorNoDevice || code == cudaSuccess) {
    return absl::UnavailableError(
        absl::StrCat("this machine has an NVIDIA driver, but shows no "
                     "CUDA device",
                     Visible(), kOnCpu));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the CUDA devices of this machine cannot be used: ",
                   cudaGetErrorName(code), ": ", cudaGetErrorString(code),
                   Visible(), "; the driver serves CUDA ", Version(driver),
                   ", this build needs ", Version(runtime), kOnCpu));
}

absl::Status Examine(int ordinal, DeviceFacts* facts) {
  cudaDeviceProp p;
  if (const cudaError_t error = cudaGetDeviceProperties(&p, ordinal);
      error != cudaSuccess) {
    return NoDevices(error);
  }
  constexpr double kGib = int64_t{1} << 30;
  facts->name = absl::StrFormat("%s, %.1f GiB, sm_%d%d", p.name,
                                static_cast<double>(p.totalGlobalMem) / kGib,
                                p.major, p.minor);
  facts->multiprocessors = p.multiProcessorCount;
  facts->cache = p.l2CacheSize;
  if (p.major < kLeastMajor) {
    return absl::FailedPreconditionError(absl::StrCat(
        "there are no kernels for CUDA device ", ordinal, " (", facts->name,
        "): Delink needs compute capability ", kLeastMajor,
        ".0 or newer (Ampere, Hopper, Blackwell)", kOnCpu));
  }
  int pools = 0;
  if (const cudaError_t error = cudaDeviceGetAttribute(
          &pools, cudaDevAttrMemoryPoolsSupported, ordinal);
      error != cudaSuccess) {
    return NoDevices(error);
  }
  if (pools != 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "CUDA device ", ordinal, " (", facts->name,
      ") has no memory pools, like some virtual GPUs; use a GPU that has them",
      kOnCpu));
}

}  // namespace cuda

absl::StatusOr<int> CountCudaDevices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) return cuda::NoDevices(error);
  return count;
}

}  // namespace delink
