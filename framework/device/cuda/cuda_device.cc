// A CUDA device, over the runtime API.
//
// Streams are the runtime's, which do not wait for the default one. What
// kernels need beside their arguments (stream.h) a stream takes when it is
// prepared or first launches; streams that only copy never do. Small copies go
// through pinned memory (staging.h), which streams hand on to each other.
#include <cuda_runtime_api.h>

#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/device/backend.h"
#include "framework/device/cuda/check.h"
#include "framework/device/cuda/find_devices.h"
#include "framework/device/cuda/staging.h"
#include "framework/device/cuda/stream.h"

namespace delink {
namespace {

class CudaDevice;

class CudaEvent final : public Event {
 public:
  // `flags`: the runtime's.
  CudaEvent(CudaDevice& device, unsigned flags);
  ~CudaEvent() override;
  cudaEvent_t handle() const { return handle_; }

 private:
  CudaDevice& device_;
  cudaEvent_t handle_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  explicit CudaStream(CudaDevice& device);
  ~CudaStream() override;

  void Record(Event& event) override;
  void Wait(const Event& event) override;
  void Synchronize() override;
  absl::Status Prepare() override;

  void FromHost(void* device, const void* host, int64_t bytes);
  void ToHost(void* host, const void* device, int64_t bytes);
  cudaStream_t handle() const { return info_.handle; }
  const cuda::StreamInfo& Info();
  CudaDevice& device() { return device_; }

 private:
  cuda::Staging& staging();

  CudaDevice& device_;
  cuda::StreamInfo info_ = {};
  std::unique_ptr<cuda::Staging> staging_;  // once it has copied
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int ordinal, cuda::DeviceFacts facts, int64_t taken)
      : ordinal_(ordinal), facts_(std::move(facts)), overhead_(taken) {}
  ~CudaDevice() override {
    Use();
    kept_.clear();
    idle_.clear();
    DELINK_CHECK_EQ(bytes_in_use_.load(), 0) << "device memory was not freed";
  }

  // A thread has a current device, for which calls are meant.
  void Use() const { DELINK_CUDA_CHECK(cudaSetDevice(ordinal_)); }
  int multiprocessors() const { return facts_.multiprocessors; }

  // Memory of the device; OutOfMemory's message where there is none.
  absl::StatusOr<void*> Take(int64_t bytes) {
    Use();
    void* address = nullptr;
    const cudaError_t error =
        cudaMalloc(&address, static_cast<size_t>(bytes > 0 ? bytes : 1));
    if (error == cudaErrorMemoryAllocation) return OutOfMemory(bytes);
    DELINK_CUDA_CHECK(error);
    return address;
  }
  absl::StatusOr<void*> TakeOverhead(int64_t bytes) {
    DELINK_ASSIGN_OR_RETURN(void* const address, Take(bytes));
    overhead_ += bytes;
    return address;
  }
  void FreeOverhead(void* address, int64_t bytes) {
    DELINK_CUDA_CHECK(cudaFree(address));
    overhead_ -= bytes;
  }

  std::unique_ptr<cuda::Staging> TakeStaging() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<cuda::Staging>();
    std::unique_ptr<cuda::Staging> staging = std::move(idle_.back());
    idle_.pop_back();
    return staging;
  }
  void GiveBack(std::unique_ptr<cuda::Staging> staging) {
    staging->Forget();
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(staging));
  }

  cuda::Resident& Kept(std::unique_ptr<cuda::Resident> (*make)()) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<cuda::Resident>& kept = kept_[make];
    if (kept == nullptr) kept = make();
    return *kept;
  }

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override { return facts_.name; }
  DeviceMemory memory() const override {
    Use();
    size_t free = 0, total = 0;
    DELINK_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return {.total = static_cast<int64_t>(total),
            .free = static_cast<int64_t>(free),
            .cache = facts_.cache};
  }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    DELINK_CHECK_GE(bytes, 0);
    DELINK_ASSIGN_OR_RETURN(void* const address, Take(bytes));
    bytes_in_use_ += bytes;
    ++allocations_;
    return address;
  }
  void Free(void* address, int64_t bytes) override {
    Use();
    DELINK_CUDA_CHECK(cudaFree(address));
    bytes_in_use_ -= bytes;
  }
  int64_t bytes_in_use() const override { return bytes_in_use_; }
  int64_t allocations() const override { return allocations_; }
  int64_t overhead() const override { return overhead_; }

  std::unique_ptr<Stream> NewStream() override {
    return std::make_unique<CudaStream>(*this);
  }
  std::unique_ptr<Event> NewEvent() override {
    return std::make_unique<CudaEvent>(*this, cudaEventDisableTiming);
  }
  std::unique_ptr<Event> NewTimingEvent() override {
    return std::make_unique<CudaEvent>(*this, cudaEventDefault);
  }
  double SecondsBetween(const Event& begin, const Event& end) override {
    Use();
    const auto& from = static_cast<const CudaEvent&>(begin);
    const auto& to = static_cast<const CudaEvent&>(end);
    DELINK_CUDA_CHECK(cudaEventSynchronize(from.handle()));
    DELINK_CUDA_CHECK(cudaEventSynchronize(to.handle()));
    float milliseconds = 0;
    DELINK_CUDA_CHECK(
        cudaEventElapsedTime(&milliseconds, from.handle(), to.handle()));
    return 1e-3 * milliseconds;
  }

  void CopyFromHost(Stream& stream, void* device, const void* host,
                    int64_t bytes) override {
    if (bytes > 0) Of(stream).FromHost(device, host, bytes);
  }
  void CopyToHost(Stream& stream, void* host, const void* device,
                  int64_t bytes) override {
    if (bytes > 0) Of(stream).ToHost(host, device, bytes);
  }
  void Copy(Stream& stream, void* to, const void* from,
            int64_t bytes) override {
    if (bytes == 0 || to == from) return;
    Use();
    DELINK_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes),
                                      cudaMemcpyDeviceToDevice,
                                      Of(stream).handle()));
  }
  void FillZero(Stream& stream, void* to, int64_t bytes) override {
    if (bytes == 0) return;
    Use();
    DELINK_CUDA_CHECK(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes),
                                      Of(stream).handle()));
  }

  static CudaStream& Of(Stream& stream) {
    return static_cast<CudaStream&>(stream.underlying());
  }

 private:
  absl::Status OutOfMemory(int64_t bytes) const {
    (void)cudaGetLastError();  // or a later call would report it again
    const DeviceMemory now = memory();
    return absl::ResourceExhaustedError(absl::StrCat(
        "out of memory on ", facts_.name, ": asked for ", bytes, " bytes with ",
        now.free, " of ", now.total, " free; in use here are ",
        bytes_in_use_.load(), ", and ", overhead_.load(),
        " by the driver, other programs and streams"));
  }

  const int ordinal_;
  const cuda::DeviceFacts facts_;
  std::atomic<int64_t> bytes_in_use_{0};
  std::atomic<int64_t> allocations_{0};
  std::atomic<int64_t> overhead_;
  std::mutex mutex_;  // of what follows
  std::vector<std::unique_ptr<cuda::Staging>> idle_;
  std::map<std::unique_ptr<cuda::Resident> (*)(),
           std::unique_ptr<cuda::Resident>>
      kept_;
};

CudaEvent::CudaEvent(CudaDevice& device, unsigned flags) : device_(device) {
  device_.Use();
  DELINK_CUDA_CHECK(cudaEventCreateWithFlags(&handle_, flags));
}
CudaEvent::~CudaEvent() {
  device_.Use();
  DELINK_CUDA_CHECK(cudaEventDestroy(handle_));
}

CudaStream::CudaStream(CudaDevice& device) : device_(device) {
  device_.Use();
  info_.multiprocessors = device.multiprocessors();
  DELINK_CUDA_CHECK(
      cudaStreamCreateWithFlags(&info_.handle, cudaStreamNonBlocking));
}

CudaStream::~CudaStream() {
  device_.Use();
  DELINK_CUDA_CHECK(cudaStreamSynchronize(handle()));
  if (staging_ != nullptr) device_.GiveBack(std::move(staging_));
  if (info_.scratch != nullptr) {
    device_.FreeOverhead(info_.scratch, info_.scratch_bytes);
  }
  DELINK_CUDA_CHECK(cudaStreamDestroy(handle()));
}

void CudaStream::Record(Event& event) {
  device_.Use();
  DELINK_CUDA_CHECK(
      cudaEventRecord(static_cast<CudaEvent&>(event).handle(), handle()));
}

void CudaStream::Wait(const Event& event) {
  device_.Use();
  DELINK_CUDA_CHECK(cudaStreamWaitEvent(
      handle(), static_cast<const CudaEvent&>(event).handle(), 0));
}

void CudaStream::Synchronize() {
  device_.Use();
  DELINK_CUDA_CHECK(cudaStreamSynchronize(handle()));
  if (staging_ != nullptr) staging_->Land();
}

absl::Status CudaStream::Prepare() {
  if (info_.scratch != nullptr) return absl::OkStatus();
  DELINK_ASSIGN_OR_RETURN(info_.scratch,
                          device_.TakeOverhead(cuda::kScratchBytes));
  info_.scratch_bytes = cuda::kScratchBytes;
  return absl::OkStatus();
}

const cuda::StreamInfo& CudaStream::Info() {
  device_.Use();
  if (info_.scratch == nullptr) {
    const absl::Status prepared = Prepare();
    DELINK_CHECK(prepared.ok()) << std::string(prepared.message());
  }
  return info_;
}

cuda::Staging& CudaStream::staging() {
  if (staging_ == nullptr) staging_ = device_.TakeStaging();
  return *staging_;
}

void CudaStream::FromHost(void* device, const void* host, int64_t bytes) {
  device_.Use();
  if (bytes <= cuda::Staging::kLargest) {
    staging().ToDevice(handle(), device, host, bytes);
    return;
  }
  DELINK_CUDA_CHECK(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes),
                                    cudaMemcpyHostToDevice, handle()));
}

void CudaStream::ToHost(void* host, const void* device, int64_t bytes) {
  device_.Use();
  if (staging().ToHost(handle(), host, device, bytes)) return;
  DELINK_CUDA_CHECK(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes),
                                    cudaMemcpyDeviceToHost, handle()));
}

}  // namespace

namespace cuda {

const StreamInfo& InfoOf(Stream& stream) {
  return CudaDevice::Of(stream).Info();
}

Resident& Kept(Stream& stream, std::unique_ptr<Resident> (*make)()) {
  CudaDevice& device = CudaDevice::Of(stream).device();
  device.Use();
  return device.Kept(make);
}

}  // namespace cuda

absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(int ordinal) {
  DELINK_ASSIGN_OR_RETURN(const int count, CountCudaDevices());
  if (ordinal < 0 || ordinal >= count) {
    return absl::NotFoundError(absl::StrCat("there is no CUDA device ", ordinal,
                                            ": this machine shows ", count,
                                            ", counted from 0"));
  }
  cuda::DeviceFacts facts;
  DELINK_RETURN_IF_ERROR(cuda::Examine(ordinal, &facts));
  size_t free = 0, total = 0;
  cudaError_t error = cudaSetDevice(ordinal);
  if (error == cudaSuccess) error = cudaMemGetInfo(&free, &total);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return absl::UnavailableError(absl::StrCat(
        "CUDA device ", ordinal, " (", facts.name,
        ") cannot be used: ", cudaGetErrorName(error), ": ",
        cudaGetErrorString(error), "; is another program using it alone?"));
  }
  return std::make_unique<CudaDevice>(ordinal, std::move(facts),
                                      static_cast<int64_t>(total - free));
}

}  // namespace delink
