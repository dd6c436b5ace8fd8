// What arguments.h and find_kernels.h promise beside the numbers: who has
// a table, rows that do not depend on their neighbours, not-a-number that is
// not lost, scratch for fewer threads.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "layers/kernels/cpu/threads.h"
#include "layers/kernels/find_kernels.h"
#include "tests/testing/guarded.h"
#include "tests/testing/numbers.h"

namespace delink::testing {
namespace {

using Floats = std::vector<float>;

class Contract : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = NewCpuDevice();
  std::unique_ptr<Stream> owned_ = device_->NewStream();
  Stream& stream_ = *owned_;
  const Kernels& kernels_ = *FindKernels(DeviceKind::kCpu, DType::kF32);
};

TEST_F(Contract, TablesAreComplete) {
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kMeta}) {
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      const Kernels* kernels = FindKernels(device, dtype);
      ASSERT_NE(kernels, nullptr);
      std::array<void*, sizeof(Kernels) / sizeof(void*)> entries;
      std::memcpy(entries.data(), kernels, sizeof(Kernels));
      for (const void* entry : entries) EXPECT_NE(entry, nullptr);
    }
    EXPECT_EQ(FindKernels(device, DType::kI32), nullptr);
    EXPECT_EQ(FindKernels(device, DType::kBF16), nullptr);
  }
  EXPECT_EQ(FindKernels(DeviceKind::kCuda, DType::kF32), nullptr);
}

TEST_F(Contract, MetaTouchesNothingAndAsksForTheSameScratch) {
  const Kernels& meta = *FindKernels(DeviceKind::kMeta, DType::kF32);
  AttentionBackwardArgs backward = {2, 4, 2, 40, 65, 70, 1.0};
  meta.attention_backward(stream_, backward);  // all pointers are null
  const int64_t bytes = meta.attention_backward_scratch_bytes(backward, 3);
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(bytes, kernels_.attention_backward_scratch_bytes(backward, 3));
  AttentionForwardArgs forward = {2, 4, 2, 40, 65, 70, 1.0};
  EXPECT_EQ(meta.attention_forward_scratch_bytes(forward, 3),
            kernels_.attention_forward_scratch_bytes(forward, 3));
}

// Products of an unbroken A: few rows, on one thread, and all at once, on more.
TEST_F(Contract, RowsOfAProductDoNotDependOnTheirNumber) {
  const int64_t m = 67, n = 48, k = 700;
  const Floats a = Normals<float>("a", m * k), b = Normals<float>("b", k * n);
  const Floats bias = Normals<float>("bias", n);
  for (const bool transpose_b : {false, true}) {
    Floats whole(m * n), rows(m * n);
    const auto multiply = [&](int64_t first, int64_t count, Floats& c) {
      kernels_.matmul(stream_, {.m = count,
                                .n = n,
                                .k = k,
                                .transpose_b = transpose_b,
                                .a = a.data() + first * k,
                                .lda = k,
                                .b = b.data(),
                                .ldb = transpose_b ? k : n,
                                .c = c.data() + first * n,
                                .ldc = n,
                                .bias = bias.data()});
    };
    multiply(0, m, whole);
    multiply(0, 1, rows);
    multiply(1, 2, rows);
    multiply(3, 64, rows);
    EXPECT_EQ(whole, rows);
  }
}

// Generation with a cache sees a query at a time; training sees all of them.
TEST_F(Contract, AQueryDoesNotDependOnItsNeighbours) {
  const int64_t H = 2, Dh = 24, T = 150, width = H * Dh;
  const Floats q = Normals<float>("q", T * width);
  const Floats k = Normals<float>("k", T * width);
  const Floats v = Normals<float>("v", T * width);
  int64_t window = 0;
  const auto attend = [&](int64_t first, int64_t count, Floats& o) {
    AttentionForwardArgs args = {.B = 1,
                                 .H = H,
                                 .Hkv = H,
                                 .Dh = Dh,
                                 .Tq = count,
                                 .Tk = first + count,
                                 .scale = 0.3,
                                 .window = window,
                                 .q = q.data() + first * width,
                                 .q_strides = {T * width, width},
                                 .k = k.data(),
                                 .v = v.data(),
                                 .kv_strides = {T * width, width},
                                 .o = o.data() + first * width,
                                 .o_strides = {T * width, width},
                                 .lse = nullptr};
    Guarded<char> scratch(kernels_.attention_forward_scratch_bytes(args, 1));
    args.scratch = scratch.data();
    args.scratch_bytes = scratch.size();
    kernels_.attention_forward(stream_, args);
  };
  for (const int64_t w : {0, 1, 7, 64, 100}) {
    SCOPED_TRACE(w);
    window = w;
    Floats whole(T * width), pieces(T * width);
    attend(0, T, whole);
    attend(0, 70, pieces);
    for (int64_t t = 70; t < T; ++t) attend(t, 1, pieces);
    EXPECT_EQ(whole, pieces);
  }
}

TEST_F(Contract, NormAndLossOfARowDoNotDependOnOtherRows) {
  const int64_t N = 7, D = 45;
  const Floats x = Normals<float>("x", N * D), w = Normals<float>("w", D);
  Floats whole(N * D), row(D);
  kernels_.layer_norm_forward(
      stream_, {N, D, 1e-5, x.data(), w.data(), nullptr, whole.data()});
  kernels_.layer_norm_forward(
      stream_, {1, D, 1e-5, x.data() + 5 * D, w.data(), nullptr, row.data()});
  EXPECT_EQ(row, Floats(whole.begin() + 5 * D, whole.begin() + 6 * D));

  const std::vector<int32_t> targets = {0, 1, 44, 3, 4, 5, 6};
  const auto loss = [&](std::vector<int64_t> cuts) {
    Floats logits = x;
    std::vector<double> row_loss(N);
    double sum = 0.0;
    int64_t count = 0;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      kernels_.cross_entropy(
          stream_,
          {cuts[i + 1] - cuts[i], D, D, logits.data() + cuts[i] * D,
           targets.data() + cuts[i], -1, false, row_loss.data(), &sum, &count});
    }
    EXPECT_EQ(count, N);
    return sum;
  };
  EXPECT_EQ(loss({0, 7}), loss({0, 1, 4, 7}));  // in chunks: the same bits
}

TEST_F(Contract, NotANumberIsNotLost) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t D : {3, 16, 40}) {
    Floats x(D, 1.0F), y(D), dx(D), w(D, 1.0F);
    const Floats dy(D, 1.0F);
    x[D - 1] = nan;
    for (const GeluForm form : {GeluForm::kTanh, GeluForm::kErf}) {
      kernels_.gelu_forward(stream_, {D, form, x.data(), y.data()});
      EXPECT_TRUE(std::isnan(y[D - 1]));
      kernels_.gelu_backward(stream_,
                             {D, form, dy.data(), x.data(), dx.data()});
      EXPECT_TRUE(std::isnan(dx[D - 1]));
    }
    kernels_.layer_norm_forward(
        stream_, {1, D, 1e-5, x.data(), w.data(), nullptr, y.data()});
    EXPECT_TRUE(std::isnan(y[0]));
    const int32_t target = 0;
    double row_loss = 0.0, sum = 0.0;
    int64_t count = 0;
    kernels_.cross_entropy(stream_, {1, D, D, x.data(), &target, -1, true,
                                     &row_loss, &sum, &count});
    EXPECT_TRUE(std::isnan(sum));
    EXPECT_TRUE(std::isnan(x[0]));
  }
}

TEST_F(Contract, LessScratchMeansFewerThreadsAndTheSameBits) {
  const int64_t B = 3, H = 2, T = 160, Dh = 16, width = 3 * H * Dh;
  const Floats qkv = Normals<float>("qkv", B * T * width);
  const auto attend = [&](int threads) {
    Floats o(B * T * H * Dh);
    AttentionForwardArgs args = {.B = B,
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
                                 .o_strides = {T * H * Dh, H * Dh},
                                 .lse = nullptr};
    Guarded<char> scratch(
        kernels_.attention_forward_scratch_bytes(args, threads));
    args.scratch = scratch.data();
    args.scratch_bytes = scratch.size();
    cpu::SetThreads(3);
    kernels_.attention_forward(stream_, args);
    return o;
  };
  const int before = cpu::MaxThreads();
  EXPECT_EQ(attend(1), attend(3));
  cpu::SetThreads(before);
}

using ContractDeathTest = Contract;

TEST_F(ContractDeathTest, NoScratchIsAMistakeOfTheProgrammer) {
  AttentionForwardArgs args = {1, 1, 1, 8, 4, 4, 1.0};
  args.scratch_bytes = 16;
  EXPECT_DEATH(kernels_.attention_forward(stream_, args),
               "scratch for less than one thread");
}

}  // namespace
}  // namespace delink::testing
