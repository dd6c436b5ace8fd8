// A CUDA device, over the runtime API.
//
// Memory comes from one arena (arena.h). Streams are the runtime's, which do
// not wait for the default one. A stream allocates the scratch of kernels
// (stream.h) when it is prepared or launches its first kernel; streams that
// only copy never do. Small copies go through pinned memory (staging.h). A
// stream that is no longer used is reused with its staging; once one is
// prepared, another is ready for copies beside it.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/device/backend.h"
#include "framework/device/cuda/arena.h"
#include "framework/device/cuda/check.h"
#include "framework/device/cuda/find_devices.h"
#include "framework/device/cuda/pin_host.h"
#include "framework/device/cuda/staging.h"
#include "framework/device/cuda/stream.h"
#include "framework/device/profile.h"

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

// The parts of a stream that the next one reuses.
struct Channel {
  cudaStream_t stream;
  std::unique_ptr<cuda::Staging> staging;
};

class CudaStream final : public Stream {
 public:
  CudaStream(CudaDevice& device, std::string_view name);
  ~CudaStream() override;

  void Record(Event& event) override;
  void Wait(const Event& event) override;
  void Synchronize() override;
  void SynchronizeWith(const Event& event) override;
  bool Reached(const Event& event) override;
  absl::Status Prepare() override;

  void FromHost(void* device, const void* host, int64_t bytes);
  void ToHost(void* host, const void* device, int64_t bytes);
  cudaStream_t handle() const { return info_.handle; }
  const cuda::StreamInfo& Info();
  CudaDevice& device() { return device_; }

 private:
  CudaDevice& device_;
  const std::string name_;
  Channel channel_;
  cuda::StreamInfo info_ = {};
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int ordinal, cuda::DeviceFacts facts, int64_t taken)
      : ordinal_(ordinal), facts_(std::move(facts)), arena_(ordinal) {
    ledgers_.own.Take(this, taken, "driver and other programs");
  }
  ~CudaDevice() override {
    Use();
    kept_.clear();
    for (const Channel& channel : idle_) {
      DELINK_CUDA_CHECK(cudaStreamDestroy(channel.stream));
    }
    idle_.clear();
    DELINK_CHECK_EQ(bytes_in_use(), 0) << "device memory was not freed";
  }

  // CUDA calls apply to the thread's current device.
  void Use() const { DELINK_CUDA_CHECK(cudaSetDevice(ordinal_)); }
  int multiprocessors() const { return facts_.multiprocessors; }

  // Memory of the device's overhead.
  absl::StatusOr<void*> TakeOwn(int64_t bytes, std::string_view what) {
    DELINK_ASSIGN_OR_RETURN(void* const address, Take(bytes, what));
    ledgers_.own.Take(address, bytes, what);
    return address;
  }
  void GiveOwn(void* address) {
    Use();
    ledgers_.own.Give(address);
    arena_.Give(address);
  }

  Channel TakeChannel() {
    const MutexLock lock(mutex_);
    if (idle_.empty()) idle_.push_back(NewChannel());
    Channel channel = std::move(idle_.back());
    idle_.pop_back();
    return channel;
  }
  void HaveIdleChannel() {
    const MutexLock lock(mutex_);
    if (idle_.empty()) idle_.push_back(NewChannel());
  }
  void GiveBack(Channel channel) {
    channel.staging->Forget();
    const MutexLock lock(mutex_);
    idle_.push_back(std::move(channel));
  }

  // A library's memory is measured as the decrease of free memory, whoever took
  // it.
  cuda::Resident& Kept(std::unique_ptr<cuda::Resident> (*make)()) {
    const MutexLock lock(mutex_);
    std::unique_ptr<cuda::Resident>& kept = kept_[make];
    if (kept == nullptr) {
      const int64_t before = memory().free;
      kept = make();
      ledgers_.own.Take(kept.get(),
                        std::max<int64_t>(before - memory().free, 0),
                        "libraries");
    }
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
            .cache = facts_.cache,
            .held = arena_.held(),
            .most_held = arena_.most_held()};
  }

  absl::StatusOr<void*> Allocate(int64_t bytes,
                                 std::string_view what) override {
    DELINK_CHECK_GE(bytes, 0);
    DELINK_ASSIGN_OR_RETURN(void* const address, Take(bytes, what));
    const absl::Status taken = TakeWithinLimit(address, bytes, what);
    if (taken.ok()) return address;
    arena_.Give(address);
    return taken;
  }
  void Free(void* address, int64_t) override {
    Use();
    ledgers_.allocated.Give(address);
    arena_.Give(address);
  }
  HostMemory AllocateHost(int64_t bytes, std::string_view what) override {
    Use();
    HostMemory memory = cuda::PinHost(bytes);
    if (memory == nullptr) return Device::AllocateHost(bytes, what);
    ledgers_.pinned.Take(memory.get(), bytes, what);
    {
      const MutexLock lock(mutex_);
      pinned_[static_cast<const char*>(memory.get())] = bytes;
    }
    const auto unpin = memory.get_deleter();
    return {memory.release(), [this, unpin](void* address) {
              Use();
              ledgers_.pinned.Give(address);
              {
                const MutexLock lock(mutex_);
                pinned_.erase(static_cast<const char*>(address));
              }
              unpin(address);
            }};
  }
  // Whether all of it was allocated by AllocateHost, and pinned.
  bool IsPinned(const void* host, int64_t bytes) {
    const auto* const begin = static_cast<const char*>(host);
    const MutexLock lock(mutex_);
    auto block = pinned_.upper_bound(begin);
    if (block == pinned_.begin()) return false;
    --block;
    return begin + bytes <= block->first + block->second;
  }
  void Trim() override {
    Use();
    arena_.Trim();
  }

  std::unique_ptr<Stream> NewStream(std::string_view what) override {
    return std::make_unique<CudaStream>(*this, what);
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
                                      cudaMemcpyDefault, Of(stream).handle()));
  }
  void CopyRows(Stream& stream, const RowsCopy& copy) override {
    if (copy.bytes == 0 || copy.rows == 0) return;
    if (copy.contiguous()) {
      return Copy(stream, copy.to, copy.from, copy.bytes * copy.rows);
    }
    Use();
    DELINK_CUDA_CHECK(cudaMemcpy2DAsync(
        copy.to, static_cast<size_t>(copy.to_pitch), copy.from,
        static_cast<size_t>(copy.from_pitch), static_cast<size_t>(copy.bytes),
        static_cast<size_t>(copy.rows), cudaMemcpyDefault,
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
  // Memory that a ledger then has.
  absl::StatusOr<void*> Take(int64_t bytes, std::string_view what) {
    Use();
    void* address = nullptr;
    if (!arena_.Take(bytes > 0 ? bytes : 1, &address)) {
      return OutOfMemory(bytes, what);
    }
    return address;
  }
  absl::Status OutOfMemory(int64_t bytes, std::string_view what) const {
    const DeviceMemory now = memory();
    return absl::ResourceExhaustedError(absl::StrCat(
        "out of memory on ", facts_.name, ": asked for ", bytes, " bytes for ",
        absl::string_view(what.data(), what.size()), " with ", now.free, " of ",
        now.total, " free; in use here are ", bytes_in_use(), " (",
        ledgers_.allocated.ToString(), "), and ", overhead(), " besides (",
        ledgers_.own.ToString(), ")"));
  }
  Channel NewChannel() {
    Use();
    Channel channel{.staging =
                        std::make_unique<cuda::Staging>(ledgers_.pinned)};
    DELINK_CUDA_CHECK(
        cudaStreamCreateWithFlags(&channel.stream, cudaStreamNonBlocking));
    return channel;
  }

  const int ordinal_;
  const cuda::DeviceFacts facts_;
  cuda::Arena arena_;
  Mutex mutex_;
  std::vector<Channel> idle_ ABSL_GUARDED_BY(mutex_);
  // Bytes by begin: the pinned blocks of AllocateHost.
  std::map<const char*, int64_t> pinned_ ABSL_GUARDED_BY(mutex_);
  std::map<std::unique_ptr<cuda::Resident> (*)(),
           std::unique_ptr<cuda::Resident>>
      kept_ ABSL_GUARDED_BY(mutex_);
};

CudaEvent::CudaEvent(CudaDevice& device, unsigned flags) : device_(device) {
  device_.Use();
  DELINK_CUDA_CHECK(cudaEventCreateWithFlags(&handle_, flags));
}
CudaEvent::~CudaEvent() {
  device_.Use();
  DELINK_CUDA_CHECK(cudaEventDestroy(handle_));
}

CudaStream::CudaStream(CudaDevice& device, std::string_view name)
    : device_(device), name_(name), channel_(device.TakeChannel()) {
  info_.handle = channel_.stream;
  info_.multiprocessors = device.multiprocessors();
  NameCudaStream(info_.handle, name_.c_str());
}

CudaStream::~CudaStream() {
  device_.Use();
  DELINK_CUDA_CHECK(cudaStreamSynchronize(handle()));
  if (info_.scratch != nullptr) device_.GiveOwn(info_.scratch);
  device_.GiveBack(std::move(channel_));
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
  channel_.staging->DeliverToHost();
}

void CudaStream::SynchronizeWith(const Event& event) {
  device_.Use();
  DELINK_CUDA_CHECK(
      cudaEventSynchronize(static_cast<const CudaEvent&>(event).handle()));
  channel_.staging->DeliverToHost();
}

bool CudaStream::Reached(const Event& event) {
  device_.Use();
  const cudaError_t error =
      cudaEventQuery(static_cast<const CudaEvent&>(event).handle());
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();  // the runtime keeps it, and it is no error
    return false;
  }
  DELINK_CUDA_CHECK(error);
  channel_.staging->DeliverToHost();
  return true;
}

absl::Status CudaStream::Prepare() {
  device_.HaveIdleChannel();
  if (info_.scratch != nullptr) return absl::OkStatus();
  DELINK_ASSIGN_OR_RETURN(
      info_.scratch,
      device_.TakeOwn(cuda::kScratchBytes, cuda::ScratchName(name_)));
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

void CudaStream::FromHost(void* device, const void* host, int64_t bytes) {
  device_.Use();
  if (bytes <= cuda::Staging::kLargest && !device_.IsPinned(host, bytes)) {
    channel_.staging->ToDevice(handle(), device, host, bytes);
    return;
  }
  DELINK_CUDA_CHECK(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes),
                                    cudaMemcpyDefault, handle()));
}

void CudaStream::ToHost(void* host, const void* device, int64_t bytes) {
  device_.Use();
  if (!device_.IsPinned(host, bytes) &&
      channel_.staging->ToHost(handle(), host, device, bytes)) {
    return;
  }
  DELINK_CUDA_CHECK(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes),
                                    cudaMemcpyDefault, handle()));
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
        "CUDA device ", ordinal, " (", facts.name, ") cannot be used: ",
        cudaGetErrorName(error), ": ", cudaGetErrorString(error),
        "; does another program use it exclusively?"));
  }
  return std::make_unique<CudaDevice>(ordinal, std::move(facts),
                                      static_cast<int64_t>(total - free));
}

}  // namespace delink
