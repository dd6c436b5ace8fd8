// What calls of kernels have to do, against sums made by hand; and the device
// that notes them.
#include "layers/kernels/work.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "layers/kernels/find_kernels.h"
#include "layers/kernels/timed/timed.h"

namespace delink::work_test {
namespace {

using Clock = std::chrono::steady_clock;

void Expect(const Work& work, double flops, double read, double written) {
  EXPECT_EQ(work.flops, flops) << work.kernel;
  EXPECT_EQ(work.read, read) << work.kernel;
  EXPECT_EQ(work.written, written) << work.kernel;
}

TEST(Work, OfMatmuls) {
  MatmulArgs a{.m = 2, .n = 3, .k = 5};
  Expect(WorkOf(a, DType::kF32), 60, 4 * (10 + 15), 4 * 6);
  Expect(WorkOf(a, DType::kBF16), 60, 2 * (10 + 15), 2 * 6);
  float bias = 0;
  a.bias = &bias;
  Expect(WorkOf(a, DType::kF32), 60, 4 * (10 + 15 + 3), 4 * 6);
  a.bias = nullptr;
  a.accumulate = a.c_is_gradient = true;  // f32, read as well
  Expect(WorkOf(a, DType::kBF16), 60, 2 * (10 + 15) + 4 * 6, 4 * 6);
}

TEST(Work, OfRows) {
  float x = 0;
  Expect(WorkOf(GeluBackwardArgs{.count = 7}, DType::kF32), 0, 56, 28);
  Expect(WorkOf(SwiGluForwardArgs{.N = 3, .F = 5}, DType::kBF16), 0, 60, 30);
  Expect(WorkOf(SwiGluBackwardArgs{.N = 3, .F = 5}, DType::kF32), 0, 180, 120);
  // x and two parameters; y, mean and rstd.
  Expect(
      WorkOf(
          LayerNormForwardArgs{.N = 3, .D = 5, .b = &x, .mean = &x, .rstd = &x},
          DType::kBF16),
      0, 2 * (15 + 10), 2 * 15 + 4 * 6);
  // dy, x, both statistics, and what is added to; gradients are f32.
  Expect(WorkOf(
             LayerNormBackwardWeightArgs{
                 .N = 3, .D = 5, .db = &x, .accumulate = true},
             DType::kBF16),
         0, 2 * 30 + 4 * 6 + 4 * 10, 4 * 10);
  Expect(
      WorkOf(EmbeddingBackwardWeightArgs{.N = 3, .D = 5, .V = 11}, DType::kF32),
      0, 4 * 15 + 4 * 3, 4 * 55);
}

// Gradients that are kept in bf16: written in it, and read where added to.
TEST(Work, OfNarrowGradients) {
  EmbeddingBackwardWeightArgs w{.N = 3, .D = 5, .V = 11, .narrow = true};
  Expect(WorkOf(w, DType::kBF16), 0, 2 * 15 + 4 * 3, 2 * 55);
  w.accumulate = true;
  Expect(WorkOf(w, DType::kBF16), 0, 2 * 15 + 4 * 3 + 2 * 15, 2 * 15);
  EmbeddingBackwardPositionArgs p{
      .B = 2, .T = 3, .D = 5, .Tmax = 7, .narrow = true};
  Expect(WorkOf(p, DType::kBF16), 0, 2 * 30, 2 * 35);
  Expect(WorkOf(WidenArgs{.count = 7}, DType::kBF16), 0, 2 * 7, 4 * 7);
  RoundGradientArgs round{.count = 7};
  Expect(WorkOf(round, DType::kBF16), 0, 4 * 7, 2 * 7);
  round.accumulate = true;
  Expect(WorkOf(round, DType::kBF16), 0, 4 * 7 + 2 * 7, 2 * 7);
}

// Of parts: some tokens alone, columns of a vocabulary, by row three doubles.
TEST(Work, OfWhatRanksShare) {
  Expect(WorkOf(DropoutArgs{.B = 2, .T = 3, .D = 5, .rows = 4}, DType::kF32), 0,
         80, 80);
  Expect(WorkOf(VocabMaxArgs{.N = 3, .V = 5}, DType::kBF16), 0, 2 * 15, 8 * 3);
  Expect(WorkOf(VocabSumsArgs{.N = 3, .V = 5}, DType::kBF16), 0,
         2 * 15 + 4 * 3 + 8 * 3, 8 * 6);
  VocabCrossEntropyArgs a{.N = 3, .V = 5};
  Expect(WorkOf(a, DType::kF32), 0, 4 * 3 + 8 * 9, 0);
  a.want_grad = true;
  Expect(WorkOf(a, DType::kF32), 0, 4 * 15 + 4 * 3 + 8 * 9, 4 * 15);
}

// Rows are counted as if all that fit were there.
TEST(Work, OfExperts) {
  Expect(WorkOf(RouteArgs{.N = 3, .E = 5, .k = 2}, DType::kBF16), 0, 4 * 15,
         4 * 6 + 4 * 6);
  GroupedMatmulArgs a{.E = 2, .cap = 3, .in = 5, .out = 7};
  Expect(WorkOf(a, DType::kBF16), 2 * 3 * 35, 2 * (15 + 70), 2 * 21);
  a.form = GroupedForm::kInput;
  Expect(WorkOf(a, DType::kF32), 2 * 3 * 35, 4 * (21 + 70), 4 * 15);
  a.form = GroupedForm::kWeight;
  Expect(WorkOf(a, DType::kBF16), 2 * 3 * 35, 2 * 36, 4 * 70);
  a.accumulate = a.narrow = true;
  Expect(WorkOf(a, DType::kBF16), 2 * 3 * 35, 2 * 36 + 2 * 70, 2 * 70);
  ExpertActForwardArgs act{.E = 2, .cap = 3, .F = 5};
  Expect(WorkOf(act, DType::kF32), 0, 4 * 30, 4 * 15);
  act.activation = ExpertActivation::kGeluErf;
  Expect(WorkOf(act, DType::kF32), 0, 4 * 15, 4 * 15);
}

TEST(Work, OfAttention) {
  // Pairs of a query and a key: 1 + 2 + 3 + 4, with a window 1 + 2 + 2 + 2.
  AttentionForwardArgs a{
      .B = 2, .H = 4, .Hkv = 2, .Dh = 8, .Tq = 4, .Tk = 4, .lse = &a};
  const double product = 2.0 * 2 * 4 * 8;
  Expect(WorkOf(a, DType::kF32), 2 * product * 10, 4 * (256 + 256),
         4 * 256 + 4 * 32);
  a.window = 2;
  EXPECT_EQ(WorkOf(a, DType::kF32).flops, 2 * product * 7);
  const AttentionBackwardArgs back{
      .B = 2, .H = 4, .Hkv = 2, .Dh = 8, .Tq = 4, .Tk = 4};
  // q, o, d_o, k, v, lse; dq, dk, dv.
  Expect(WorkOf(back, DType::kBF16), 5 * product * 10,
         2 * (3 * 256 + 256) + 4 * 32, 2 * (256 + 256));
}

TEST(TimedDevice, NotesEveryCallAndChangesNoBit) {
  KernelCalls calls;
  const std::unique_ptr<Device> timed = NewTimedDevice(NewCpuDevice(), calls);
  const std::unique_ptr<Device> plain = NewCpuDevice();
  const std::unique_ptr<Stream> timed_stream = timed->NewStream();
  const std::unique_ptr<Stream> plain_stream = plain->NewStream();
  const std::vector<float> x = {-2, -0.5F, 0, 0.25F, 3};
  std::vector<float> y(x.size()), expected(x.size());
  GeluForwardArgs args{static_cast<int64_t>(x.size()), GeluForm::kTanh,
                       x.data(), y.data()};
  const Clock::time_point before = Clock::now();
  FindKernels(DeviceKind::kTimedCpu, DType::kF32)
      ->gelu_forward(*timed_stream, args);
  timed->FillZero(*timed_stream, expected.data(), 20);
  timed->FillZero(*timed_stream, expected.data(), 0);  // nothing to note
  const Clock::time_point after = Clock::now();
  args.y = expected.data();
  FindKernels(DeviceKind::kCpu, DType::kF32)->gelu_forward(*plain_stream, args);
  EXPECT_EQ(y, expected);

  ASSERT_EQ(calls.calls().size(), 2u);
  const TimedCall& gelu = calls.calls()[0];
  const TimedCall& fill = calls.calls()[1];
  EXPECT_EQ(gelu.work.kernel, std::string("gelu_forward"));
  Expect(gelu.work, 0, 20, 20);
  EXPECT_EQ(fill.work.kernel, std::string("fill_zero"));
  Expect(fill.work, 0, 0, 20);
  EXPECT_LE(before, gelu.begin);
  EXPECT_LE(gelu.begin, gelu.end);
  EXPECT_LE(gelu.end, fill.begin);
  EXPECT_LE(fill.end, after);
  calls.Clear();
  EXPECT_TRUE(calls.calls().empty());
}

TEST(TimedDevice, HasEveryKernelOfTheCpu) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    const Kernels* const cpu = FindKernels(DeviceKind::kCpu, dtype);
    const Kernels* const timed = FindKernels(DeviceKind::kTimedCpu, dtype);
    ASSERT_EQ(cpu == nullptr, timed == nullptr) << ToString(dtype);
    if (cpu == nullptr) continue;
#define DELINK_EXPECT(entry, Function) \
  EXPECT_NE(timed->entry, nullptr) << ToString(dtype) << " " #entry;
    DELINK_KERNELS(DELINK_EXPECT)
    DELINK_SCRATCH_BYTES(DELINK_EXPECT)
#undef DELINK_EXPECT
  }
  EXPECT_EQ(FindKernels(DeviceKind::kTimedCpu, DType::kI32), nullptr);
}

}  // namespace
}  // namespace delink::work_test
