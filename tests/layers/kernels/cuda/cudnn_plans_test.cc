// What cuDNN itself says of our graphs, on any machine that has cuDNN: told the
// properties of a GPU that is not there it picks an engine, compiles its kernel
// and says what workspace that takes.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "framework/device/cuda/scratch.h"
#include "layers/kernels/cuda/attention_scratch.h"
#include "layers/kernels/cuda/cudnn/graphs.h"
#include "layers/kernels/cuda/open_library.h"
#include "nlohmann/json.hpp"
#include "tests/testing/full_test.h"

namespace delink::cuda::cudnn_plans_test {
namespace {

struct Gpu {
  const char* name;
  int architecture;  // 90
  int multiprocessors;
  int shared_bytes;  // a block may have at most
  int64_t cache_bytes, memory_bytes;

  friend std::ostream& operator<<(std::ostream& out, const Gpu& gpu) {
    return out << gpu.name;
  }
};
constexpr Gpu kA100 = {
    "NVIDIA A100-SXM4-80GB", 80, 108, 166912, 40 << 20, 85000000000};
constexpr Gpu kH200 = {"NVIDIA H200", 90, 132, 232448, 50 << 20, 150000000000};
constexpr Gpu kB200 = {"NVIDIA B200", 100,       148,
                       232448,        126 << 20, 191000000000};

// As cuDNN writes them.
std::string PropertiesOf(const Gpu& gpu) {
  return nlohmann::json{{"deviceName", gpu.name},
                        {"deviceVer", 10 * gpu.architecture},
                        {"driverVer", 13000},
                        {"multiProcessorCount", gpu.multiprocessors},
                        {"maxSharedMemoryPerBlock", 48 << 10},
                        {"maxSharedMemoryPerBlockOptin", gpu.shared_bytes},
                        {"reservedSharedMemoryPerBlock", 1024},
                        {"l2CacheSize", gpu.cache_bytes},
                        {"totalGlobalMem", gpu.memory_bytes},
                        {"maxGridSize", {2147483647, 65535, 65535}},
                        {"maxBlockSize", {1024, 1024, 64}},
                        {"maxThreadsPerBlock", 1024},
                        {"maxThreadsPerSM", 2048},
                        {"maxCtasPerSM", 32},
                        {"maxRegistersPerSM", 65536},
                        {"regsPerBlock", 65536},
                        {"warpSize", 32},
                        {"smClockRateKHz", 1400000},
                        {"memClockRateKHz", 2600000},
                        {"supportCoopLaunch", 1},
                        {"isTccDriver", 0},
                        {"cudaDeviceId", 0},
                        {"pciDeviceId", 0}}
      .dump();
}

// Sizes of one layer's attention, on a packed projection.
struct Sizes {
  int64_t B, H, Hkv, Dh, T, window;

  friend std::ostream& operator<<(std::ostream& out, const Sizes& s) {
    return out << "B " << s.B << ", T " << s.T << ", heads " << s.H << "/"
               << s.Hkv << " of " << s.Dh << ", window " << s.window;
  }
};

template <typename Args>
Args Call(const Sizes& s) {
  const int64_t row = (s.H + 2 * s.Hkv) * s.Dh;
  Args args = {};
  args.B = s.B;
  args.H = s.H;
  args.Hkv = s.Hkv;
  args.Dh = s.Dh;
  args.Tq = args.Tk = s.T;
  args.scale = 0.125;
  args.window = s.window;
  args.q_strides = args.kv_strides = {s.T * row, row};
  args.o_strides = {s.T * s.H * s.Dh, s.H * s.Dh};
  return args;
}

class CudnnPlans : public ::testing::TestWithParam<std::tuple<Gpu, Sizes>> {
 protected:
  static void SetUpTestSuite() {
    OpenNvrtc();
    const auto library = OpenCudaLibrary("libcudnn.so.9");
    if (!library.ok()) missing_ = library.status().ToString();
    // Also where there is a driver: its GPU is another one.
    if (dlopen(DELINK_DRIVER_WITHOUT_GPU, RTLD_NOW) == nullptr) {
      missing_ = dlerror();
    }
    if (missing_.empty()) UseCudnn(library->handle());
  }

  void SetUp() override {
    if (!missing_.empty()) GTEST_SKIP() << missing_;
  }

  static const Gpu& gpu() { return std::get<0>(GetParam()); }
  static const Sizes& sizes() { return std::get<1>(GetParam()); }

  // A plan that wants at most so many bytes of workspace.
  static void ExpectPlan(const GraphShape& shape, int64_t workspace) {
    AttentionGraph graph(shape, gpu().architecture);
    const absl::Status status = graph.BuildFor(PropertiesOf(gpu()));
    if (absl::IsUnimplemented(status)) {
      GTEST_SKIP() << "this cuDNN describes devices otherwise: "
                   << status.message();
    }
    EXPECT_EQ(status, absl::OkStatus());
    EXPECT_LE(graph.workspace(), workspace);
  }

 private:
  static std::string missing_;  // why there is no cuDNN
};
std::string CudnnPlans::missing_;

std::string NameOf(
    const ::testing::TestParamInfo<std::tuple<Gpu, Sizes>>& info) {
  const auto& [gpu, s] = info.param;
  return "sm" + std::to_string(gpu.architecture) + "_" + std::to_string(s.H) +
         "x" + std::to_string(s.Hkv) + "_of_" + std::to_string(s.Dh) + "_T" +
         std::to_string(s.T);
}

TEST_P(CudnnPlans, ForwardFitsIntoTheStreamsScratch) {
  auto call = Call<AttentionForwardArgs>(sizes());
  ASSERT_TRUE(IsForCudnn(call));
  for (const bool training : {true, false}) {
    float statistics = 0;
    call.lse = training ? &statistics : nullptr;
    SCOPED_TRACE(training);
    ExpectPlan(ShapeOf(call), kScratchBytes);
  }
}

TEST_P(CudnnPlans, BackwardFitsIntoWhatIsPlannedForIt) {
  auto call = Call<AttentionBackwardArgs>(sizes());
  ASSERT_TRUE(IsForCudnn(call));
  for (const bool deterministic : {true, false}) {
    call.deterministic = deterministic;
    const AttentionPart part = BackwardPart(call);
    SCOPED_TRACE(deterministic);
    ExpectPlan(ShapeOf(call, part), part.workspace);
  }
}

// gpt-124m, Qwen2.5's 1.5B and 7B, and what is odd.
INSTANTIATE_TEST_SUITE_P(
    Hopper, CudnnPlans,
    ::testing::Combine(::testing::Values(kH200),
                       ::testing::ValuesIn(testing::FullOrEvery<Sizes>(
                           2, {{64, 12, 12, 64, 1024, 0},
                               {16, 12, 2, 128, 1024, 0},
                               {3, 6, 3, 40, 77, 0},
                               {8, 28, 4, 128, 4096, 0},
                               {2, 8, 4, 128, 1024, 256},
                               {1, 4, 4, 256, 512, 0}}))),
    NameOf);
INSTANTIATE_TEST_SUITE_P(
    Others, CudnnPlans,
    ::testing::Combine(::testing::Values(kA100, kB200),
                       ::testing::ValuesIn(testing::FullOrEvery<Sizes>(
                           2, {{2, 8, 4, 128, 1024, 256},
                               {16, 12, 12, 64, 1024, 0}}))),
    NameOf);

}  // namespace
}  // namespace delink::cuda::cudnn_plans_test
