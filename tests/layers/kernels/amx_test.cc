// Products of bf16 by AMX: on a model of its tiles anywhere, and held against
// the processor's own where it has them.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/base/log.h"
#include "framework/tensor/bfloat16.h"
#include "layers/kernels/cpu/targets.h"
#include "layers/kernels/cpu/threads.h"
#include "layers/kernels/find_kernels.h"
#include "tests/layers/kernels/calls.h"
#include "tests/layers/kernels/cases.h"
#include "tests/testing/numbers.h"

#if defined(DELINK_BUILT_AMX)
#include "layers/kernels/cpu/x86/amx.h"
#endif

namespace delink::cpu::emulated_tiles {
template <typename T>
void Matmul(Stream&, const MatmulArgs&);
template <typename T>
void GroupedMatmul(Stream&, const GroupedMatmulArgs&);
}  // namespace delink::cpu::emulated_tiles

namespace delink::testing::amx_test {
namespace {

using Values = std::vector<BFloat16>;

class AmxTest : public ::testing::Test {
 protected:
  AmxTest() {
    emulated_.matmul = cpu::emulated_tiles::Matmul<BFloat16>;
    emulated_.grouped_matmul = cpu::emulated_tiles::GroupedMatmul<BFloat16>;
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  std::unique_ptr<Stream> stream_ = device_->NewStream();
  Kernels emulated_ = *FindKernels(DeviceKind::kCpu, DType::kBF16);
};

TEST_F(AmxTest, AgreesWithTheReference) {
  for (const auto& cases : {MatmulCases(), ExpertCases()}) {
    for (const Case& c : cases) {
      SCOPED_TRACE(c.name);
      ExpectAgrees(c.bf16(emulated_, *stream_), Expected(c, true, *stream_));
    }
  }
}

template <typename C>
std::vector<C> Product(const Kernels& kernels, Stream& stream, int64_t m,
                       int64_t n, int64_t k, const Values& a, const Values& b,
                       int layout, int threads) {
  const int before = cpu::MaxThreads();
  cpu::SetThreads(threads);
  std::vector<C> c(m * n, C(0.5F));
  MatmulArgs args = ProductOf(m, n, k, a.data(), b.data(), c.data(),
                              (layout & 1) != 0, (layout & 2) != 0);
  args.c_is_gradient = !std::is_same_v<C, BFloat16>;
  args.accumulate = true;
  kernels.matmul(stream, args);
  cpu::SetThreads(before);
  return c;
}

// More rows and columns than a block has; and a longer sum than two slices.
TEST_F(AmxTest, BitsOfARowDependOnNeitherRowsNorThreads) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1056, 264, 40},
                                std::array<int64_t, 3>{66, 34, 1037}}) {
    const Values a = Normals<BFloat16>("a", m * k);
    const Values b = Normals<BFloat16>("b", n * k);
    for (const int layout : {0, 2}) {
      SCOPED_TRACE(layout);
      const Values whole =
          Product<BFloat16>(emulated_, *stream_, m, n, k, a, b, layout, 1);
      for (const int64_t rows : {int64_t{1}, int64_t{17}, int64_t{65}, m}) {
        const Values last(a.end() - rows * k, a.end());
        EXPECT_TRUE(Product<BFloat16>(emulated_, *stream_, rows, n, k, last, b,
                                      layout, 3) ==
                    Values(whole.end() - rows * n, whole.end()))
            << rows;
      }
    }
  }
}

// Micro-batches: a sum over tokens in two parts, cut where a step ends.
TEST_F(AmxTest, ASumInTwoPartsIsTheWholeSum) {
  constexpr int64_t m = 40, n = 300, k = 640;
  const Values a = Normals<BFloat16>("a", m * k);
  const Values b = Normals<BFloat16>("b", n * k);
  std::vector<float> whole(m * n), parts(m * n);
  const auto add = [&](int64_t first, int64_t rows, std::vector<float>& c) {
    MatmulArgs args = WeightGradient(m, n, rows, a.data() + first * m,
                                     b.data() + first * n, c.data(), true);
    args.c_is_gradient = true;
    emulated_.matmul(*stream_, args);
  };
  add(0, k, whole);
  add(0, 256, parts);
  add(256, k - 256, parts);
  EXPECT_EQ(whole, parts);
}

TEST_F(AmxTest, TheProcessorsTilesAreTheModels) {
  const cpu::InstructionSet amx = cpu::Targets().front();
  if (std::string(amx.name) != "amx" || !amx.supported) {
    GTEST_SKIP() << "this machine has no AMX";
  }
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1056, 264, 40},
                                std::array<int64_t, 3>{33, 34, 1037},
                                std::array<int64_t, 3>{1, 5, 7}}) {
    const Values a = Normals<BFloat16>("a", m * k);
    const Values b = Normals<BFloat16>("b", n * k);
    for (int layout = 0; layout < 4; ++layout) {
      SCOPED_TRACE(layout);
      const auto theirs =
          Product<float>(*amx.bf16, *stream_, m, n, k, a, b, layout, 2);
      const auto ours =
          Product<float>(emulated_, *stream_, m, n, k, a, b, layout, 2);
      EXPECT_LE(WorstError(std::span<const float>(theirs),
                           std::span<const float>(ours)),
                Tolerance<float>(k));
    }
  }
}

#if defined(DELINK_BUILT_AMX)
TEST(AmxPermission, AKernelThatRefusesIsSaidInOneLine) {
  EXPECT_TRUE(cpu::MayUseTiles([] { return 0; }));
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(cpu::MayUseTiles([] { return EPERM; }));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(
      said.find("the processor has AMX, but the kernel refuses it to this "
                "process (arch_prctl: Operation not permitted); bf16 uses "
                "AVX-512\n"),
      std::string::npos)
      << said;
}
#endif

}  // namespace
}  // namespace delink::testing::amx_test
