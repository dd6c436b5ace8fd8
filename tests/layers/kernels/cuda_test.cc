// CUDA's kernels: f32 against the reference in double, bf16 against the
// reference on bf16; then again, bit for bit. Every buffer is pinned memory,
// which kernels read and write as the host does.
//
// Built twice: on the emulated device, where every access is checked, and on a
// real one, where there is one.
#include "layers/kernels/cuda/cuda.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "framework/device/cuda/check.h"
#include "layers/kernels/find_kernels.h"
#include "layers/kernels/wrap.h"
#include "tests/layers/kernels/cases.h"
#include "tests/testing/on_cuda.h"

namespace delink::testing::cuda_test {
namespace {

constexpr bool kEmulated = DELINK_EMULATED;

class PinnedMemory final : public GuardedMemory {
 public:
  void* Allocate(int64_t bytes) override {
    void* address = nullptr;
    DELINK_CUDA_CHECK(cudaHostAlloc(
        &address, static_cast<size_t>(std::max<int64_t>(bytes, 1)),
        cudaHostAllocMapped));
    return address;
  }
  void Free(void* address) override {
    DELINK_CUDA_CHECK(cudaFreeHost(address));
  }
  bool checked() const override { return kEmulated; }
};

// Calls of CUDA's table that are done when they return.
template <DType kType>
struct Synchronised {
  template <auto kEntry, typename Args>
  static void Call(Stream& stream, const Args& args) {
    (FindKernels(DeviceKind::kCuda, kType)->*kEntry)(stream, args);
    stream.Synchronize();
  }
  static Kernels Table() {
    return WrapKernels<Synchronised>(*FindKernels(DeviceKind::kCuda, kType));
  }
};

class CudaKernels
    : public OnCuda,
      public ::testing::WithParamInterface<std::tuple<DType, Group>> {
 protected:
  void SetUp() override {
    OnCuda::SetUp();
    if (device_ == nullptr) return;
    memory_scope_ = std::make_unique<ScopedGuardedMemory>(pinned_);
    const auto& [dtype, group] = GetParam();
    const std::string missing = cuda::MissingLibrary();
    if (group.cases == MatmulCases && !missing.empty()) GTEST_SKIP() << missing;
    bf16_ = dtype == DType::kBF16;
    kernels_ = bf16_ ? Synchronised<DType::kBF16>::Table()
                     : Synchronised<DType::kF32>::Table();
  }

  Outputs Run(const Case& c) {
    return (bf16_ ? c.bf16 : c.f32)(kernels_, *stream_);
  }

  // What NVIDIA's libraries do, which the emulated device has not: by what was
  // seen on an H100.
  void AllowLibraries(const std::string& name, Outputs& outputs) const {
    for (Output& output : outputs) {
      if (bf16_ && std::get<1>(GetParam()).cases == AttentionCases) {
        // cuDNN multiplies by probabilities, and by gradients of scores, that
        // are rounded to bf16. A wrong mask or stride is still far off.
        double largest = 4;
        for (const double v : output.values) {
          largest = std::max(largest, std::fabs(v));
        }
        output.tolerance += 0x1p-6 * largest;
      }
      // Some of cuBLASLt's kernels round a product before the bias, or what is
      // there, is added to it.
      output.twice = absl::StartsWith(name, "matmul");
      // Its tanh in f32.
      if (!bf16_ && absl::StartsWith(name, "matmul_gelu ")) {
        output.tolerance += 0x1p-14;
      }
    }
  }

  std::unique_ptr<Device> host_ = NewCpuDevice();
  std::unique_ptr<Stream> host_stream_ = host_->NewStream();
  PinnedMemory pinned_;
  std::unique_ptr<ScopedGuardedMemory> memory_scope_;
  bool bf16_ = false;
  Kernels kernels_ = {};
};

// What takes most of the time of the emulated device, and is met in a smaller
// case as well: windows over many tiles (131 tokens have them too), the widest
// heads on two tiles (33 tokens on 64 have both), whole batches of 200 tokens,
// documents of one sample (two have the same lengths).
bool TooBigToEmulate(const std::string& name) {
  for (const char* part :
       {"Dh8 Tq200 Tk200 size1 W1", "Dh8 Tq200 Tk200 size1 W2",
        "Dh8 Tq200 Tk200 size1 W3", "Dh8 Tq200 Tk200 size1 W5",
        "Dh8 Tq200 Tk200 size1 W6", "Dh17 Tq200", "Dh256 Tq65", "Dh264 Tq65",
        "Dh96 Tq127", "Dh3 Tq150"}) {
    if (name.find(part) != std::string::npos) return true;
  }
  return false;
}

TEST_P(CudaKernels, AgreeWithTheReferenceTwiceTheSame) {
  const auto& [dtype, group] = GetParam();
  for (const Case& c : group.cases()) {
    if (kEmulated && TooBigToEmulate(c.name)) continue;
    SCOPED_TRACE(c.name);
    Outputs first = Run(c);
    if (!kEmulated) AllowLibraries(c.name, first);
    ExpectAgrees(first, Expected(c, bf16_, *host_stream_));
    ExpectSame(Run(c), first);
  }
}

class CudaFarElements : public OnCuda {};

TEST_F(CudaFarElements, AreReached) {
  ExpectFarElements(*FindKernels(DeviceKind::kCuda, DType::kBF16), *device_,
                    /*all_gradients=*/false);
}

INSTANTIATE_TEST_SUITE_P(All, CudaKernels,
                         ::testing::Combine(::testing::Values(DType::kF32,
                                                              DType::kBF16),
                                            ::testing::ValuesIn(kGroups)),
                         [](const auto& info) {
                           return std::string(std::get<1>(info.param).name) +
                                  "_" + ToString(std::get<0>(info.param));
                         });

}  // namespace
}  // namespace delink::testing::cuda_test
