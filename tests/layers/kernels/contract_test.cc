// What arguments.h and find_kernels.h promise beside the numbers: who has
// a table, rows that do not depend on their neighbours, not-a-number that is
// not lost, scratch for fewer threads.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "framework/tensor/bfloat16.h"
#include "layers/kernels/cpu/targets.h"
#include "layers/kernels/cpu/threads.h"
#include "layers/kernels/find_kernels.h"
#include "tests/layers/kernels/calls.h"
#include "tests/testing/numbers.h"

namespace delink::testing::contract_test {
namespace {

template <typename T>
class Contract : public ::testing::Test {
 protected:
  static constexpr DType kType =
      std::is_same_v<T, float> ? DType::kF32 : DType::kBF16;

  std::unique_ptr<Device> device_ = NewCpuDevice();
  std::unique_ptr<Stream> owned_ = device_->NewStream();
  Stream& stream_ = *owned_;
  const Kernels& kernels_ = *FindKernels(DeviceKind::kCpu, kType);
};
using Types = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(Contract, Types);

TEST(Tables, AreComplete) {
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kMeta}) {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
      const Kernels* kernels = FindKernels(device, dtype);
      ASSERT_NE(kernels, nullptr);
      std::array<void*, sizeof(Kernels) / sizeof(void*)> entries;
      std::memcpy(entries.data(), kernels, sizeof(Kernels));
      for (const void* entry : entries) EXPECT_NE(entry, nullptr);
    }
    EXPECT_EQ(FindKernels(device, DType::kI32), nullptr);
  }
  EXPECT_EQ(FindKernels(DeviceKind::kCuda, DType::kF64), nullptr);
}

// What is said of bf16 is true: of our own loops only those of tiles have
// instructions for it.
TEST(Tables, Bf16IsFastWhereInstructionsMultiply) {
  const Kernels& kernels = *FindKernels(DeviceKind::kCpu, DType::kBF16);
  bool ours = false;
  for (const cpu::InstructionSet& target : cpu::Targets()) {
    ours = ours ||
           (kernels.matmul == target.bf16->matmul && !target.multiplies_bf16);
  }
  EXPECT_EQ(FastBf16(), !ours);
}

TYPED_TEST(Contract, MetaTouchesNothingAndAsksForTheSameScratch) {
  const Kernels& meta = *FindKernels(DeviceKind::kMeta, this->kType);
  AttentionBackwardArgs backward = {2, 4, 2, 40, 65, 70, 1.0};
  meta.attention_backward(this->stream_, backward);  // all pointers are null
  const int64_t bytes = meta.attention_backward_scratch_bytes(backward, 3);
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(bytes,
            this->kernels_.attention_backward_scratch_bytes(backward, 3));
  AttentionForwardArgs forward = {2, 4, 2, 40, 65, 70, 1.0};
  EXPECT_EQ(meta.attention_forward_scratch_bytes(forward, 3),
            this->kernels_.attention_forward_scratch_bytes(forward, 3));
}

// What a norm adds to is what an addition afterwards makes of it. (In bf16 it
// is rounded once less.)
TEST(Norms, BackwardAddsAsAnAdditionDoes) {
  constexpr int64_t N = 5, D = 131;
  const Kernels& kernels = *FindKernels(DeviceKind::kCpu, DType::kF32);
  const std::unique_ptr<Device> device = NewCpuDevice();
  const std::unique_ptr<Stream> stream = device->NewStream();
  using Values = std::vector<float>;
  const Values dy = Normals<float>("dy", N * D), x = Normals<float>("x", N * D);
  const Values w = Normals<float>("w", D), before = Normals<float>("g", N * D);
  const Values mean = Normals<float>("mean", N), rstd(N, 1.25F);
  Values dx(N * D), added = before;
  kernels.layer_norm_backward_input(
      *stream, {N, D, dy.data(), x.data(), w.data(), mean.data(), rstd.data(),
                dx.data()});
  kernels.accumulate(*stream, {N * D, dx.data(), added.data()});
  Values at_once = before;
  kernels.layer_norm_backward_input(
      *stream, {N, D, dy.data(), x.data(), w.data(), mean.data(), rstd.data(),
                at_once.data(), at_once.data()});
  EXPECT_EQ(at_once, added);
  kernels.rms_norm_backward_input(
      *stream, {N, D, dy.data(), x.data(), w.data(), rstd.data(), dx.data()});
  added = before;
  kernels.accumulate(*stream, {N * D, dx.data(), added.data()});
  at_once = before;
  kernels.rms_norm_backward_input(
      *stream, {N, D, dy.data(), x.data(), w.data(), rstd.data(),
                at_once.data(), at_once.data()});
  EXPECT_EQ(at_once, added);
}

// Products of an unbroken A: few rows, on one thread, and all at once, on more.
TYPED_TEST(Contract, RowsOfAProductDoNotDependOnTheirNumber) {
  using Values = std::vector<TypeParam>;
  const int64_t m = 67, n = 48, k = 700;
  const Values a = Normals<TypeParam>("a", m * k),
               b = Normals<TypeParam>("b", k * n);
  const Values bias = Normals<TypeParam>("bias", n);
  for (const bool transpose_b : {false, true}) {
    Values whole(m * n), rows(m * n);
    const auto multiply = [&](int64_t first, int64_t count, Values& c) {
      MatmulArgs args =
          ProductOf(count, n, k, a.data() + first * k, b.data(),
                    c.data() + first * n, /*transpose_a=*/false, transpose_b);
      args.bias = bias.data();
      this->kernels_.matmul(this->stream_, args);
    };
    multiply(0, m, whole);
    multiply(0, 1, rows);
    multiply(1, 2, rows);
    multiply(3, 64, rows);
    EXPECT_EQ(whole, rows);
  }
}

// The same of an expert's rows, whatever other experts have.
TYPED_TEST(Contract, RowsOfAGroupedProductDoNotDependOnTheirNumber) {
  using Values = std::vector<TypeParam>;
  const int64_t rows = 301, in = 700, out = 48;
  Values x = Normals<TypeParam>("x", rows * in);
  Values w = Normals<TypeParam>("w", 3 * out * in);
  Values whole(rows * out), parts(rows * out);
  const auto multiply = [&](int64_t first, std::vector<int32_t> offsets,
                            Values& y) {
    this->kernels_.grouped_matmul(this->stream_, {.E = 3,
                                                  .cap = rows,
                                                  .in = in,
                                                  .out = out,
                                                  .form = GroupedForm::kForward,
                                                  .offsets = offsets.data(),
                                                  .x = x.data() + first * in,
                                                  .y = y.data() + first * out,
                                                  .w = w.data()});
  };
  multiply(0, {0, 0, 298, rows}, whole);
  multiply(0, {0, 0, 1, 1}, parts);
  multiply(1, {0, 0, 2, 2}, parts);
  multiply(3, {0, 0, 295, 298}, parts);
  EXPECT_EQ(whole, parts);
}

// What a model multiplies: forward, and both gradients of it.
TYPED_TEST(Contract, ProductsDoNotDependOnTheNumberOfThreads) {
  using Values = std::vector<TypeParam>;
  struct Sizes {
    int64_t m, n, k;
  };
  const int before = cpu::MaxThreads();
  for (const Sizes s : {Sizes{256, 384, 768}, Sizes{100, 1000, 2100}}) {
    const Values a = Normals<TypeParam>("a", s.m * s.k);
    const Values b = Normals<TypeParam>("b", s.k * s.n);
    for (int layout = 0; layout < 4; ++layout) {
      const bool transpose_a = (layout & 1) != 0;
      const bool transpose_b = (layout & 2) != 0;
      const auto multiply = [&]<typename C>(int threads, std::vector<C> c) {
        cpu::SetThreads(threads);
        MatmulArgs args = ProductOf(s.m, s.n, s.k, a.data(), b.data(), c.data(),
                                    transpose_a, transpose_b);
        args.c_is_gradient = !std::is_same_v<C, TypeParam>;
        this->kernels_.matmul(this->stream_, args);
        return c;
      };
      const Values zeros(s.m * s.n);
      const std::vector<float> wide(s.m * s.n);
      const Values once = multiply(1, zeros);
      const std::vector<float> gradient = multiply(1, wide);
      for (const int threads : {2, 3, 4}) {
        EXPECT_TRUE(multiply(threads, zeros) == once) << layout << threads;
        EXPECT_TRUE(multiply(threads, wide) == gradient) << layout << threads;
      }
    }
  }
  cpu::SetThreads(before);
}

// Generation with a cache sees a query at a time; training sees all of them.
TYPED_TEST(Contract, AQueryDoesNotDependOnItsNeighbours) {
  using Values = std::vector<TypeParam>;
  const int64_t H = 2, Dh = 24, T = 150, width = H * Dh;
  const Values q = Normals<TypeParam>("q", T * width);
  const Values k = Normals<TypeParam>("k", T * width);
  const Values v = Normals<TypeParam>("v", T * width);
  int64_t window = 0;
  const auto attend = [&](int64_t first, int64_t count, Values& o) {
    const HeadStrides strides = {T * width, width};
    Attend(this->kernels_, this->stream_,
           AttentionForwardArgs{.B = 1,
                                .H = H,
                                .Hkv = H,
                                .Dh = Dh,
                                .Tq = count,
                                .Tk = first + count,
                                .scale = 0.3,
                                .window = window,
                                .q = q.data() + first * width,
                                .q_strides = strides,
                                .k = k.data(),
                                .v = v.data(),
                                .kv_strides = strides,
                                .o = o.data() + first * width,
                                .o_strides = strides},
           1);
  };
  for (const int64_t w : {0, 1, 7, 64, 100}) {
    SCOPED_TRACE(w);
    window = w;
    Values whole(T * width), pieces(T * width);
    attend(0, T, whole);
    attend(0, 70, pieces);
    for (int64_t t = 70; t < T; ++t) attend(t, 1, pieces);
    EXPECT_EQ(whole, pieces);
  }
}

TYPED_TEST(Contract, NormAndLossOfARowDoNotDependOnOtherRows) {
  using Values = std::vector<TypeParam>;
  const int64_t N = 7, D = 45;
  const Values x = Normals<TypeParam>("x", N * D),
               w = Normals<TypeParam>("w", D);
  Values whole(N * D), row(D);
  this->kernels_.layer_norm_forward(
      this->stream_, {N, D, 1e-5, x.data(), w.data(), nullptr, whole.data()});
  this->kernels_.layer_norm_forward(
      this->stream_,
      {1, D, 1e-5, x.data() + 5 * D, w.data(), nullptr, row.data()});
  EXPECT_EQ(row, Values(whole.begin() + 5 * D, whole.begin() + 6 * D));

  const std::vector<int32_t> targets = {0, 1, 44, 3, 4, 5, 6};
  const auto loss = [&](std::vector<int64_t> cuts) {
    Values logits = x;
    std::vector<double> row_loss(N);
    double sum = 0.0;
    int64_t count = 0;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      this->kernels_.cross_entropy(
          this->stream_,
          {cuts[i + 1] - cuts[i], D, D, logits.data() + cuts[i] * D,
           targets.data() + cuts[i], -1, false, row_loss.data(), &sum, &count});
    }
    EXPECT_EQ(count, N);
    return sum;
  };
  EXPECT_EQ(loss({0, 7}), loss({0, 1, 4, 7}));  // in chunks: the same bits
}

// Other kernels have cases with not-a-number.
TYPED_TEST(Contract, NotANumberIsNotLostInALoss) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t D : {3, 16, 40}) {
    std::vector<TypeParam> x(D, TypeParam(1.0F));
    x[D - 1] = TypeParam(nan);
    const int32_t target = 0;
    double row_loss = 0.0, sum = 0.0;
    int64_t count = 0;
    this->kernels_.cross_entropy(
        this->stream_,
        {1, D, D, x.data(), &target, -1, true, &row_loss, &sum, &count});
    EXPECT_TRUE(std::isnan(sum));
    EXPECT_TRUE(std::isnan(float{x[0]}));
  }
}

TYPED_TEST(Contract, LessScratchMeansFewerThreadsAndTheSameBits) {
  using Values = std::vector<TypeParam>;
  const int64_t B = 3, H = 2, T = 160, Dh = 16, width = 3 * H * Dh;
  const Values qkv = Normals<TypeParam>("qkv", B * T * width);
  const auto attend = [&](int threads) {
    Values o(B * T * H * Dh);
    cpu::SetThreads(3);
    Attend(this->kernels_, this->stream_,
           AttentionForwardArgs{.B = B,
                                .H = H,
                                .Hkv = H,
                                .Dh = Dh,
                                .Tq = T,
                                .Tk = T,
                                .scale = 0.25,
                                .q = qkv.data(),
                                .q_strides = {T * width, width},
                                .k = qkv.data() + H * Dh,
                                .v = qkv.data() + 2 * H * Dh,
                                .kv_strides = {T * width, width},
                                .o = o.data(),
                                .o_strides = {T * H * Dh, H * Dh}},
           threads);
    return o;
  };
  const int before = cpu::MaxThreads();
  EXPECT_EQ(attend(1), attend(3));
  cpu::SetThreads(before);
}

template <typename T>
using ContractDeathTest = Contract<T>;
TYPED_TEST_SUITE(ContractDeathTest, Types);

TYPED_TEST(ContractDeathTest, NoScratchIsAMistakeOfTheProgrammer) {
  AttentionForwardArgs args = {1, 1, 1, 8, 4, 4, 1.0};
  args.scratch_bytes = 16;
  EXPECT_DEATH(this->kernels_.attention_forward(this->stream_, args),
               "scratch for less than one thread");
}

}  // namespace
}  // namespace delink::testing::contract_test
