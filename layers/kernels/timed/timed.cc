#include "layers/kernels/timed/timed.h"

#include <string>

#include "layers/kernels/find_kernels.h"

namespace delink {
namespace {

using Clock = std::chrono::steady_clock;

class TimedStream final : public Stream {
 public:
  TimedStream(std::unique_ptr<Stream> stream, KernelCalls& calls)
      : stream_(std::move(stream)), calls_(calls) {}
  void Record(Event& event) override { stream_->Record(event); }
  void Wait(const Event& event) override { stream_->Wait(event); }
  void Synchronize() override { stream_->Synchronize(); }
  Stream& underlying() override { return *stream_; }

  Stream& stream() { return *stream_; }
  KernelCalls& calls() { return calls_; }

 private:
  std::unique_ptr<Stream> stream_;
  KernelCalls& calls_;
};

TimedStream& Timed(Stream& stream) { return static_cast<TimedStream&>(stream); }

class TimedCpuDevice final : public Device {
 public:
  explicit TimedCpuDevice(KernelCalls& calls) : calls_(calls) {}
  DeviceKind kind() const override { return DeviceKind::kTimedCpu; }
  std::string name() const override { return cpu_->name(); }
  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    return cpu_->Allocate(bytes);
  }
  void Free(void* address, int64_t bytes) override {
    cpu_->Free(address, bytes);
  }
  int64_t bytes_in_use() const override { return cpu_->bytes_in_use(); }
  int64_t allocations() const override { return cpu_->allocations(); }
  std::unique_ptr<Stream> NewStream() override {
    return std::make_unique<TimedStream>(cpu_->NewStream(), calls_);
  }
  std::unique_ptr<Event> NewEvent() override { return cpu_->NewEvent(); }
  std::unique_ptr<Event> NewTimingEvent() override {
    return cpu_->NewTimingEvent();
  }
  double SecondsBetween(const Event& begin, const Event& end) override {
    return cpu_->SecondsBetween(begin, end);
  }
  void CopyFromHost(Stream& stream, void* device, const void* host,
                    int64_t bytes) override {
    cpu_->CopyFromHost(Timed(stream).stream(), device, host, bytes);
  }
  void CopyToHost(Stream& stream, void* host, const void* device,
                  int64_t bytes) override {
    cpu_->CopyToHost(Timed(stream).stream(), host, device, bytes);
  }
  void Copy(Stream& stream, void* to, const void* from,
            int64_t bytes) override {
    cpu_->Copy(Timed(stream).stream(), to, from, bytes);
  }
  void FillZero(Stream& stream, void* to, int64_t bytes) override {
    if (bytes == 0) return;
    const Clock::time_point begin = Clock::now();
    cpu_->FillZero(Timed(stream).stream(), to, bytes);
    calls_.Add(
        {.work = {.kernel = "fill_zero", .written = static_cast<double>(bytes)},
         .begin = begin,
         .end = Clock::now()});
  }

 private:
  std::unique_ptr<Device> cpu_ = NewCpuDevice();
  KernelCalls& calls_;
};

// An entry of the table of `kType`, between two looks at the clock.
template <DType kType, auto kEntry>
struct Entry;

template <DType kType, typename Args,
          void (*Kernels::*kEntry)(Stream&, const Args&)>
struct Entry<kType, kEntry> {
  static void Call(Stream& stream, const Args& args) {
    const Kernels& cpu = *FindKernels(DeviceKind::kCpu, kType);
    TimedStream& timed = Timed(stream);
    const Clock::time_point begin = Clock::now();
    (cpu.*kEntry)(timed.stream(), args);
    timed.calls().Add(
        {.work = WorkOf(args, kType), .begin = begin, .end = Clock::now()});
  }
};

template <DType kType>
Kernels MakeTable(const Kernels& cpu) {
  using K = Kernels;
  return {
      .matmul = Entry<kType, &K::matmul>::Call,
      .bias_grad = Entry<kType, &K::bias_grad>::Call,
      .layer_norm_forward = Entry<kType, &K::layer_norm_forward>::Call,
      .layer_norm_backward_input =
          Entry<kType, &K::layer_norm_backward_input>::Call,
      .layer_norm_backward_weight =
          Entry<kType, &K::layer_norm_backward_weight>::Call,
      .rms_norm_forward = Entry<kType, &K::rms_norm_forward>::Call,
      .rms_norm_backward_input =
          Entry<kType, &K::rms_norm_backward_input>::Call,
      .rms_norm_backward_weight =
          Entry<kType, &K::rms_norm_backward_weight>::Call,
      .qk_norm_forward = Entry<kType, &K::qk_norm_forward>::Call,
      .qk_norm_backward_input = Entry<kType, &K::qk_norm_backward_input>::Call,
      .qk_norm_backward_weight =
          Entry<kType, &K::qk_norm_backward_weight>::Call,
      .gelu_forward = Entry<kType, &K::gelu_forward>::Call,
      .gelu_backward = Entry<kType, &K::gelu_backward>::Call,
      .swiglu_forward = Entry<kType, &K::swiglu_forward>::Call,
      .swiglu_backward = Entry<kType, &K::swiglu_backward>::Call,
      .rotary = Entry<kType, &K::rotary>::Call,
      .add = Entry<kType, &K::add>::Call,
      .accumulate = Entry<kType, &K::accumulate>::Call,
      .dropout = Entry<kType, &K::dropout>::Call,
      .embedding_forward = Entry<kType, &K::embedding_forward>::Call,
      .embedding_backward_weight =
          Entry<kType, &K::embedding_backward_weight>::Call,
      .embedding_backward_position =
          Entry<kType, &K::embedding_backward_position>::Call,
      .attention_forward = Entry<kType, &K::attention_forward>::Call,
      .attention_backward = Entry<kType, &K::attention_backward>::Call,
      .attention_forward_scratch_bytes = cpu.attention_forward_scratch_bytes,
      .attention_backward_scratch_bytes = cpu.attention_backward_scratch_bytes,
      .cross_entropy = Entry<kType, &K::cross_entropy>::Call,
  };
}

template <DType kType>
const Kernels* TableOf() {
  const Kernels* const cpu = FindKernels(DeviceKind::kCpu, kType);
  if (cpu == nullptr) return nullptr;
  static const Kernels kTable = MakeTable<kType>(*cpu);
  return &kTable;
}

}  // namespace

std::unique_ptr<Device> NewTimedCpuDevice(KernelCalls& calls) {
  return std::make_unique<TimedCpuDevice>(calls);
}

namespace timed {

const Kernels* Table(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return TableOf<DType::kF32>();
    case DType::kF64:
      return TableOf<DType::kF64>();
    case DType::kBF16:
      return TableOf<DType::kBF16>();
    default:
      return nullptr;
  }
}

}  // namespace timed
}  // namespace delink
