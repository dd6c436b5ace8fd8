// `delink bench --device cuda` from end to end on the emulated device: its
// times say nothing, but everything is there and fits together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "recipes/schema/machine_file.h"
#include "tests/testing/temp_dir.h"
#include "tools/bench/bench.h"
#include "tools/bench/compare.h"
#include "tools/bench/rates_suite.h"
#include "tools/bench/update_rates.h"

namespace delink::bench::cuda_bench_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<BenchReport> Measure(BenchOptions options) {
  const delink::testing::TempDir dir;
  options.scratch = dir.path();
  options.quick = true;
  options.repetitions = 2;
  return RunBench(options, BuiltInModels(), [](const std::string&) {});
}

class CudaBench : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    absl::StatusOr<BenchReport> report =
        Measure({.device = DeviceKind::kCuda, .shapes = {"gpt-tiny"}});
    ASSERT_TRUE(report.ok()) << report.status();
    *report_ = *std::move(report);
  }
  static const BenchReport& Report() { return *report_; }

  static inline std::unique_ptr<BenchReport> report_ =
      std::make_unique<BenchReport>();
};

TEST_F(CudaBench, TheMachineIsTheDevice) {
  const Machine& machine = Report().machine;
  EXPECT_EQ(machine.device, "cuda");
  EXPECT_THAT(machine.processor, HasSubstr("sm_90"));
  EXPECT_FALSE(machine.host.empty());
  EXPECT_NE(machine.host, machine.processor);
  EXPECT_EQ(machine.memory_bytes, int64_t{8} << 30);
  ASSERT_EQ(machine.matmul.size(), 2u);
  for (const MatmulPeak& peak : machine.matmul) {
    EXPECT_GT(peak.flops_per_s, 0);
  }
  EXPECT_GT(machine.bandwidth.read, 0);
  EXPECT_EQ(machine.bandwidth.read, machine.bandwidth.triad);
}

TEST_F(CudaBench, EveryKernelIsMeasured) {
  std::set<std::string> kernels;
  for (const OpMeasure& op : Report().ops) {
    kernels.emplace(op.work.kernel);
    EXPECT_GT(op.seconds.median, 0) << op.name;
    EXPECT_GT(op.peak, 0) << op.name;
  }
  for (const StepMeasure& step : Report().steps) {
    for (const KernelShare& share : step.kernels) {
      if (share.kernel == "norm" || share.kernel == "fill_zero" ||
          share.kernel == "copy") {
        continue;
      }
      EXPECT_TRUE(kernels.contains(share.kernel)) << share.kernel;
    }
  }
  EXPECT_TRUE(kernels.contains("adamw"));
  EXPECT_TRUE(kernels.contains("attention_backward"));
}

TEST_F(CudaBench, StepsAreTimedByTheDevicesEvents) {
  std::set<std::string> forms;
  for (const StepMeasure& s : Report().steps) {
    SCOPED_TRACE(ToString(s.step));
    forms.insert(s.step.precision + " " + s.step.share);
    const StepParts& p = s.parts;
    for (const double part :
         {p.forward, p.head, p.backward, p.norm, p.update}) {
      EXPECT_GT(part, 0);
    }
    double share = 0;
    std::set<std::string> layers;
    for (const KernelShare& k : s.kernels) {
      EXPECT_GT(k.seconds, 0) << k.kernel;
      share += k.share;
      layers.insert(k.layer);
    }
    EXPECT_GT(share, 0.01);
    EXPECT_LT(share, 20);  // medians, and the host's clock
    EXPECT_THAT(layers, ::testing::IsSupersetOf({"embed", "blocks", "head"}));
    EXPECT_GT(s.light, 0);
    EXPECT_NEAR(s.loss, std::log(256), 1);
  }
  EXPECT_THAT(forms, ::testing::UnorderedElementsAre("fp32 none", "fp32 all",
                                                     "bf16 none", "bf16 all"));
}

TEST_F(CudaBench, TheAccountIsWhatTheDriverCounts) {
  for (const StepMeasure& s : Report().steps) {
    SCOPED_TRACE(ToString(s.step));
    EXPECT_EQ(s.allocated_bytes, s.memory.allocated());
    EXPECT_GT(s.device_bytes, 0);
    // Allocations are of whole pages.
    EXPECT_NEAR(static_cast<double>(s.device_bytes),
                static_cast<double>(s.memory.total()), 2 << 20);
  }
}

TEST_F(CudaBench, TheSameStepsAsOnTheCpu) {
  const absl::StatusOr<BenchReport> cpu =
      Measure({.ops = false, .shapes = {"gpt-tiny"}});
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  ASSERT_EQ(cpu->steps.size(), Report().steps.size());
  std::map<std::string, const StepMeasure*> steps;
  for (const StepMeasure& s : cpu->steps) steps[ToString(s.step)] = &s;
  for (const StepMeasure& s : Report().steps) {
    SCOPED_TRACE(ToString(s.step));
    const StepMeasure& same = *steps.at(ToString(s.step));
    EXPECT_EQ(s.flops, same.flops);
    EXPECT_EQ(s.unique_parameters, same.unique_parameters);
    EXPECT_NEAR(s.loss, same.loss, s.step.precision == "bf16" ? 2e-2 : 1e-5);
  }
  const Comparison comparison = Compare(*cpu, Report());
  EXPECT_FALSE(comparison.same_machine);
}

// Updates of the device and of its host, each measured by itself.
TEST(CudaRates, AreOfBothSides) {
  const absl::StatusOr<offload::MachineRates> rates = MeasureRates(
      {.device = DeviceKind::kCuda, .quick = true}, [](const std::string&) {});
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_EQ(rates->device.kind, "cuda");
  EXPECT_THAT(rates->device.name, HasSubstr("sm_90"));
  EXPECT_TRUE(rates->pinned_memory);
  EXPECT_TRUE(ParseMachine(ToToml(*rates), "rates").ok());
  using offload::UpdatePlace;
  for (const offload::ParamForms& forms : RatedForms()) {
    const double host = rates->ParamsPerSecond(UpdatePlace::kHost, forms),
                 device = rates->ParamsPerSecond(UpdatePlace::kDevice, forms);
    EXPECT_GT(host, 0);
    EXPECT_GT(device, 0);
    EXPECT_NE(host, device);
  }
  EXPECT_GT(rates->FlopsOf(DType::kBF16), 0);
}

TEST_F(CudaBench, TextAndJsonSayWhatWasMeasured) {
  EXPECT_THAT(ToText(Report()),
              AllOf(HasSubstr("GB/s copied"), HasSubstr("of the GPU"),
                    HasSubstr("of the speed of light")));
  const absl::StatusOr<BenchReport> again =
      ReadReport(ToJson(Report()), "report.json");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->machine.device, "cuda");
  EXPECT_EQ(again->machine.host, Report().machine.host);
  EXPECT_TRUE(SameMachine(again->machine, Report().machine));
  for (const Change& change : Compare(*again, Report()).changes) {
    EXPECT_NEAR(change.ratio, 1, 1e-9) << change.what;
  }
}

}  // namespace
}  // namespace delink::bench::cuda_bench_test
