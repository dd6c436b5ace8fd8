#include "tools/bench/update_case.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "framework/base/status_macros.h"
#include "framework/device/cpu/pooled_stream.h"
#include "framework/module/state_layout.h"
#include "framework/optim/cpu/by_instructions.h"
#include "framework/optim/cpu/masters.h"
#include "framework/optim/cpu/traffic.h"
#include "framework/optim/find_kernels.h"
#include "framework/tensor/block8.h"
#include "recipes/record/machine_peak.h"

namespace delink::bench {
namespace {

// Planes begin at addresses that map to different cache sets, as do those of
// slabs of any sizes.
constexpr int64_t kApart = 4096 + 256;
constexpr int64_t kHugePage = int64_t{2} << 20;
// The most values of a plane that are moved at a time.
constexpr int64_t kTile = 256;
constexpr int64_t kPlanes = 6;  // at most

void AskForHugePages(const Buffer& memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = begin + static_cast<uintptr_t>(memory.bytes());
  // If the system has no huge pages, other pages will do.
  if (first < end) {
    madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
  }
}

struct Unscale {
  const uint16_t* from;
  float* to;
  float factor;

  [[gnu::always_inline]] void operator()(int64_t begin, int64_t end) const {
    const uint16_t* __restrict const in = from;
    float* __restrict const out = to;
    const float by = factor;
    for (int64_t i = begin; i < end; ++i) {
      out[i] = std::bit_cast<float>(uint32_t{in[i]} << 16) * by;
    }
  }
};

struct Cast {
  const float* from;
  uint16_t* to;

  [[gnu::always_inline]] void operator()(int64_t begin, int64_t end) const {
    const float* __restrict const in = from;
    uint16_t* __restrict const out = to;
    for (int64_t i = begin; i < end; ++i) out[i] = cpu::Rounded(in[i]).bits;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<UpdateCase>> UpdateCase::Create(Device& device,
                                                               UpdateForm form,
                                                               int64_t n) {
  std::unique_ptr<UpdateCase> update(new UpdateCase(device, form, n));
  update->Place();
  DELINK_ASSIGN_OR_RETURN(update->memory_,
                          Buffer::Allocate(device, update->taken_, "states"));
  AskForHugePages(update->memory_);
  // Also fills the remainders that the fills below leave out.
  device.FillZero(*device.NewStream(), update->memory_.data(), update->taken_);
  update->Place();
  update->args_.control = &update->control_;
  return update;
}

template <typename T>
T* UpdateCase::Take(int64_t values, bool positive) {
  const auto bytes = values * static_cast<int64_t>(sizeof(T));
  void* const at = memory_.data() == nullptr ? nullptr : memory_.at(taken_);
  taken_ += AlignUp(bytes) + kApart;
  if (at != nullptr) {
    FillWithNumbers(device_, *device_.NewStream(), at, bytes, positive);
  }
  return static_cast<T*>(at);
}

void* UpdateCase::TakeMoment(bool positive) {
  switch (form_.moments) {
    case StateStorage::kExact:
      return Take<float>(n_, positive);
    case StateStorage::kBF16:
      return Take<uint16_t>(n_, positive);
    case StateStorage::kBlock8:
      break;
  }
  return Take<uint8_t>(n_, positive);
}

void UpdateCase::Add(void* at, int64_t width, bool read, bool written) {
  planes_.push_back({static_cast<char*>(at), width, read, written});
}

void UpdateCase::Place() {
  taken_ = 0;
  planes_.clear();
  args_ = {.n = n_,
           .beta1 = 0.9,
           .beta2 = 0.95,
           .eps = 1e-8,
           .decay = 0.1,
           .update = 10,
           .master = form_.master,
           .moments = form_.moments,
           .key = KeyFromSeed(1)};
  auto* const g = Take<uint16_t>(n_);
  args_.g = g;
  args_.bf16_g = true;
  Add(g, 2, true, false);
  const bool whole = form_.master == MasterForm::kWhole;
  if (whole) Add(args_.p = Take<float>(n_), 4, true, true);
  Add(args_.w = Take<uint16_t>(n_), 2, !whole, true);
  if (form_.master == MasterForm::kSplit) {
    Add(args_.low = Take<uint16_t>(n_), 2, true, true);
  }
  const int64_t width = SizeOf(form_.moments, DType::kF32);
  Add(args_.m = TakeMoment(false), width, true, true);
  Add(args_.v = TakeMoment(true), width, true, true);
  if (form_.moments == StateStorage::kBlock8) {
    const int64_t blocks = (n_ + kBlock8 - 1) / kBlock8;
    args_.m_scales = Take<float>(blocks, true);
    args_.v_scales = Take<float>(blocks, true);
  }
  passes_ = {.g = Take<float>(n_),
             .p = Take<float>(n_),
             .m = Take<float>(n_),
             .v = Take<float>(n_, true),
             .w = Take<uint16_t>(n_)};
}

void UpdateCase::Fused(ThreadPool& pool) {
  const auto stream = NewPooledStream(device_, pool);
  FindOptimKernels(DeviceKind::kCpu, DType::kF32)->adamw(*stream, args_);
}

void UpdateCase::ThreePasses(ThreadPool& pool) {
  const auto stream = NewPooledStream(device_, pool);
  cpu::RunElements(*stream,
                   Unscale{.from = static_cast<const uint16_t*>(args_.g),
                           .to = passes_.g,
                           .factor = static_cast<float>(control_.clip_factor)},
                   n_);
  AdamWArgs args = args_;
  args.master = MasterForm::kWhole;
  args.moments = StateStorage::kExact;
  args.p = passes_.p;
  args.w = nullptr;
  args.g = passes_.g;
  args.bf16_g = false;
  args.m = passes_.m;
  args.v = passes_.v;
  args.control = &unscaled_;
  FindOptimKernels(DeviceKind::kCpu, DType::kF32)->adamw(*stream, args);
  cpu::RunElements(*stream, Cast{.from = passes_.p, .to = passes_.w}, n_);
}

void UpdateCase::MovePiece(int64_t begin, int64_t n, bool past_caches) const {
  char values[kPlanes][kTile * 4];
  const bool ahead = begin + cpu::kAhead + n <= n_;
  for (size_t k = 0; k < planes_.size(); ++k) {
    const Plane& plane = planes_[k];
    if (!plane.read) continue;
    if (ahead) cpu::AskFor(plane.at, begin + cpu::kAhead, n, plane.width);
    std::memcpy(values[k], plane.at + begin * plane.width,
                static_cast<size_t>(n * plane.width));
  }
  asm volatile("" : : "r"(values) : "memory");  // is read and may change
  for (size_t k = 0; k < planes_.size(); ++k) {
    const Plane& plane = planes_[k];
    if (!plane.written) continue;
    char* const to = plane.at + begin * plane.width;
    const int64_t bytes = n * plane.width;
    if (past_caches) {
      cpu::CopyPastCaches(cpu::BestInstructions(), to, values[k], bytes);
    } else {
      std::memcpy(to, values[k], static_cast<size_t>(bytes));
    }
  }
}

void UpdateCase::MoveAlone(ThreadPool& pool, bool past_caches) {
  const int64_t at_once = past_caches ? kTile : cpu::kAskedAtOnce;
  constexpr int64_t kByThread = cpu::kElementsAtOnce;
  pool.ParallelFor((n_ + kByThread - 1) / kByThread, [&](int64_t piece) {
    const int64_t end = std::min((piece + 1) * kByThread, n_);
    for (int64_t i = piece * kByThread; i < end; i += at_once) {
      MovePiece(i, std::min(at_once, end - i), past_caches);
    }
    if (past_caches) cpu::PastCachesDone();
  });
}

double UpdateCase::bytes() const {
  double bytes = 0;
  for (const Plane& plane : planes_) {
    bytes += static_cast<double>(plane.width) *
             ((plane.read ? 1 : 0) + (plane.written ? 1 : 0));
  }
  // Two scales of f32, read and written.
  const bool scales = form_.moments == StateStorage::kBlock8;
  return bytes + (scales ? 16.0 / kBlock8 : 0);
}

}  // namespace delink::bench
