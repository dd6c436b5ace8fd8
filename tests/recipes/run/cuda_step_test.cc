// Steps on a CUDA device: what a step allocates, that any legal order of its
// streams gives the same bits, and that it is the CPU's step. Built twice: for
// the device of this build, skipped where there is none, and for the emulated
// one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/comm/self_communicator.h"
#include "tests/framework/module/plain_values.h"
#include "tests/recipes/run/bad_token.h"
#include "tests/recipes/run/pipeline_steps.h"
#include "tests/recipes/run/step_rig.h"
#include "tests/recipes/run/stream_orders.h"
#include "tests/testing/on_ranks.h"

namespace delink::testing::cuda_step_test {
namespace {

constexpr double kLr = 1e-3;
constexpr int64_t kSteps = 20, kSwitch = 10;

// What twenty steps leave.
struct Course {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> masters;
  friend bool operator==(const Course&, const Course&) = default;
};

class CudaStepTest
    : public ::testing::TestWithParam<std::tuple<const char*, StepNumbers>> {
 protected:
  void SetUp() override {
    const absl::Status status = HaveCuda();
    if (!status.ok()) GTEST_SKIP() << std::string(status.message());
  }
  static DType dtype() { return std::get<1>(GetParam()).dtype; }
  static RigOptions Of(DeviceKind device, RigOptions options) {
    options.device = device;
    options.dtype = dtype();
    options.bf16_gradients = std::get<1>(GetParam()).bf16_gradients;
    options.layers = 2;
    options.global_batch = 4;
    return OfKind(std::get<0>(GetParam()), options);
  }
  // With shared weights, then each layer its own, two micro-batches a step.
  static Course Train(const RigOptions& options, int64_t steps = kSteps) {
    SelfCommunicator comm;
    StepRig rig(comm, "all", options);
    Course course;
    for (int64_t step = 1; step <= steps; ++step) {
      const StepResult result =
          *rig.executor().TrainStep(rig.Batch(step), step, kLr);
      EXPECT_FALSE(result.skipped);
      course.losses.push_back(result.loss);
      course.norms.push_back(result.grad_norm);
      if (step == kSwitch) rig.Switch("none", StatePolicy::kScale);
    }
    for (const std::string& name : rig.Tensors()) {
      course.masters[name] = rig.Master(name);
    }
    return course;
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, CudaStepTest,
                         ::testing::Combine(::testing::ValuesIn(kModelKinds),
                                            ::testing::ValuesIn(kNumbers)));

double LargestRatio(const std::vector<double>& a,
                    const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(a[i]));
  }
  return largest;
}

double Quantile(const Course& a, const Course& b, double quantile) {
  std::vector<double> differences;
  for (const auto& [name, values] : a.masters) {
    const std::vector<float>& other = b.masters.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      differences.push_back(std::abs(double{values[i]} - other[i]));
    }
  }
  std::sort(differences.begin(), differences.end());
  return differences[static_cast<size_t>(
      quantile * static_cast<double>(differences.size() - 1))];
}

// docs/equality.md: two devices differ as two layouts do, by the order of sums
// in f32; and in bf16 by what that moves across the middle of two numbers.
TEST_P(CudaStepTest, TwentyStepsAreTheCpusWhateverTheOrderOfStreams) {
  RigOptions options = Of(DeviceKind::kCpu, {.recompute = true, .clip = 1});
  const Course cpu = Train(options);
  options.device = DeviceKind::kCuda;
  const Course cuda = Train(options);
  const bool bf16 = dtype() == DType::kBF16;
  const double loss = LargestRatio(cpu.losses, cuda.losses);
  const double median = Quantile(cpu, cuda, 0.5) / kLr;
  const double tail = Quantile(cpu, cuda, 0.99) / kLr;
  EXPECT_LT(loss, bf16 ? 5e-4 : 2e-5);
  EXPECT_LT(median, bf16 ? 0.05 : 0.01);
  EXPECT_LT(tail, bf16 ? 0.5 : 0.3);
  RecordProperty("differences", absl::StrCat(loss, " ", median, " ", tail));
  // An order of its own for each kind.
  const auto& [kind, numbers] = GetParam();
  const uint64_t seed = 1 + (bf16 ? 1 : 0) + (numbers.bf16_gradients ? 2 : 0) +
                        (kind == kModelKinds[0] ? 4 : 0);
  InOrder(seed, [&] { EXPECT_EQ(Train(options), cuda) << seed; });
}

TEST_P(CudaStepTest, MaskedDocumentsAreTheCpusToo) {
  constexpr int64_t kFew = 3;
  RigOptions options = Of(DeviceKind::kCpu, {.masked = true});
  const Course cpu = Train(options, kFew);
  options.device = DeviceKind::kCuda;
  const Course cuda = Train(options, kFew);
  const bool bf16 = dtype() == DType::kBF16;
  EXPECT_LT(LargestRatio(cpu.losses, cuda.losses), bf16 ? 5e-4 : 2e-5);
  options.recompute = true;
  EXPECT_EQ(Train(options, kFew), cuda);
  options.masked = false;
  EXPECT_GT(LargestRatio(Train(options, kFew).losses, cuda.losses), 1e-3);
}

TEST_P(CudaStepTest, RecomputeAndOrderAreBitEqual) {
  constexpr int64_t kFew = 3;
  const auto train = [](RigOptions options) {
    return Train(Of(DeviceKind::kCuda, options), kFew);
  };
  const Course kept = train({.dropout = 0.1});
  EXPECT_EQ(train({.recompute = true, .dropout = 0.1}), kept);
  if (std::get<0>(GetParam()) == std::string("llama")) return;
  const RigOptions apart{.tied = false};
  RigOptions by_layer = apart;
  by_layer.order = MicroBatchOrder::kLayerMajor;
  // Without sharing the order of the micro-batches' sums is the same.
  SelfCommunicator comm;
  StepRig a(comm, "none", Of(DeviceKind::kCuda, apart));
  StepRig b(comm, "none", Of(DeviceKind::kCuda, by_layer));
  for (StepRig* const rig : {&a, &b}) {
    ASSERT_TRUE(rig->executor().TrainStep(rig->Batch(1), 1, kLr).ok());
  }
  for (const std::string& name : a.Tensors()) {
    EXPECT_EQ(a.Master(name), b.Master(name)) << name;
  }
}

// Two stages, each with streams of its own for what comes and goes; backwards
// whole or in two halves.
TEST(CudaPipelineTest, StepsAreThoseWithoutAPipeline) {
  if (const absl::Status status = HaveCuda(); !status.ok()) {
    GTEST_SKIP() << status;
  }
  for (const bool threads : {false, true}) {
    const PipelineCase of{
        .micro_batches = 3,
        .options = {.device = DeviceKind::kCuda,
                    .dtype = threads ? DType::kBF16 : DType::kF32,
                    .layers = 2,
                    .tied = false,
                    .lane_threads = threads,
                    .halves = threads}};
    InOrder(threads ? 1 : 2, [&] {
      OnRanks(of.ranks(),
              [&](Communicator& world) { ExpectStepsAsWithout(world, of); });
    });
  }
}

TEST_P(CudaStepTest, AllocatesTheAccountAndNothingLater) {
  SelfCommunicator comm;
  StepRig rig(comm, "all",
              Of(DeviceKind::kCuda, {.recompute = true, .dropout = 0.1}));
  const MemoryAccount account = rig.executor().account();
  EXPECT_EQ(rig.device().bytes_in_use(), account.allocated());
  EXPECT_EQ(rig.device().overhead(), account.overhead);
  const int64_t allocations = rig.device().allocations();
  for (int64_t step = 1; step <= 2; ++step) {
    ASSERT_TRUE(rig.executor().TrainStep(rig.Batch(step), step, kLr).ok());
    ASSERT_TRUE(rig.executor().Evaluate(rig.Batch(step)).ok());
    ASSERT_TRUE(rig.executor().WeightNorms().ok());
  }
  EXPECT_EQ(rig.device().allocations(), allocations);
  EXPECT_EQ(rig.device().overhead(), account.overhead);
}

// Everything else that looks at the device's memory.
TEST_P(CudaStepTest, WhatIsMeasuredIsTheCpus) {
  SelfCommunicator comm;
  const RigOptions options{.probes = true};
  StepRig cpu(comm, "all", Of(DeviceKind::kCpu, options));
  StepRig cuda(comm, "all", Of(DeviceKind::kCuda, options));
  const double tolerance = dtype() == DType::kBF16 ? 2e-2 : 1e-4;
  const HostBatch batch = cpu.Batch(1);
  const LossRecord a = *cpu.executor().Evaluate(batch);
  const LossRecord b = *cuda.executor().Evaluate(batch);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_NEAR(b.loss_sum, a.loss_sum, tolerance * a.loss_sum);
  const auto before = *cpu.executor().Probe(batch, 1);
  const auto after = *cuda.executor().Probe(batch, 1);
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(after[i].of.together, before[i].of.together,
                tolerance * before[i].of.together);
    EXPECT_NEAR(after[i].of.apart, before[i].of.apart,
                tolerance * before[i].of.apart);
  }
  ASSERT_TRUE(cpu.executor().TrainStep(batch, 1, kLr).ok());
  ASSERT_TRUE(cuda.executor().TrainStep(batch, 1, kLr).ok());
  const std::vector<double> gradients = cuda.executor().GradientNorms();
  const std::vector<double> weights = *cuda.executor().WeightNorms();
  for (size_t i = 0; i < weights.size(); ++i) {
    const double gradient = cpu.executor().GradientNorms()[i];
    EXPECT_NEAR(gradients[i], gradient, tolerance * gradient);
    const double weight = (*cpu.executor().WeightNorms())[i];
    EXPECT_NEAR(weights[i], weight, 1e-3 * weight);
  }
}

TEST_P(CudaStepTest, ANonFiniteStepChangesNothingAndIsNamed) {
  SelfCommunicator comm;
  StepRig rig(comm, "none", Of(DeviceKind::kCuda, {}));
  const std::string name = "blocks/0/mlp/down/weight";
  const auto master = rig.Master(name);
  for (const LogicalTensor& t : rig.store().layout().tensors()) {
    if (t.name != "blocks/1/mlp/down/weight") continue;
    const float infinity = std::numeric_limits<float>::infinity();
    testing::SetParameters(rig.store(), *rig.device().NewStream(), t.slab,
                           t.offset, 1, &infinity);
  }
  EXPECT_TRUE(rig.executor().TrainStep(rig.Batch(1), 1, kLr)->skipped);
  EXPECT_EQ(rig.Master(name), master);
  EXPECT_THAT(*rig.executor().Diagnose(rig.Batch(1), 1),
              ::testing::HasSubstr("blocks/1"));
}

TEST(CudaRouterTest, ANonFiniteStepNamesItsToken) {
  const absl::Status status = HaveCuda();
  if (!status.ok()) GTEST_SKIP() << std::string(status.message());
  SelfCommunicator comm;
  for (const DType dtype : kPrecisions) {
    EXPECT_EQ(*DiagnoseBadToken(comm,
                                {.device = DeviceKind::kCuda,
                                 .dtype = dtype,
                                 .layers = 3,
                                 .global_batch = 4},
                                {.micro_batch = 1, .sequence = 1, .token = 7}),
              "rank 0: the output of the router of blocks/2 is not finite "
              "(micro-batch 1, sequence 1, token 7)");
  }
}

}  // namespace
}  // namespace delink::testing::cuda_step_test
