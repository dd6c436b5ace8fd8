// A quick measurement, from end to end: figures are rough, but must fit each
// other.
#include "tools/bench/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "layers/kernels/cpu/threads.h"
#include "layers/kernels/find_kernels.h"
#include "tests/testing/temp_dir.h"

namespace delink::bench::bench_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class QuickBench : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    cpu::SetThreads(1);
    const delink::testing::TempDir dir;
    absl::StatusOr<BenchReport> report =
        RunBench({.scratch = dir.path(), .quick = true}, BuiltInModels(),
                 [](const std::string& what) { told_->push_back(what); });
    ASSERT_TRUE(report.ok()) << report.status();
    *report_ = *std::move(report);
    EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  }

  static const BenchReport& Report() { return *report_; }
  static json Json() { return json::parse(ToJson(*report_)); }

  static inline std::unique_ptr<BenchReport> report_ =
      std::make_unique<BenchReport>();
  static inline std::unique_ptr<std::vector<std::string>> told_ =
      std::make_unique<std::vector<std::string>>();
};

TEST_F(QuickBench, TheMachineHasItsFigures) {
  const json machine = Json()["machine"];
  EXPECT_FALSE(machine["processor"].get<std::string>().empty());
  EXPECT_GE(machine["cores"], 1);
  EXPECT_EQ(machine["threads"], 1);
  EXPECT_GT(machine["memory_bytes"], int64_t{1} << 28);
  ASSERT_GE(machine["matmul"].size(), 1u);
  EXPECT_EQ(machine["matmul"][0]["dtype"], "f32");
  EXPECT_GT(machine["matmul"][0]["flops_per_s"], 1e7);
  EXPECT_GT(machine["bandwidth"]["read_bytes_per_s"], 1e7);
  EXPECT_GT(machine["bandwidth"]["triad_bytes_per_s"], 1e7);
  for (const char* const both : {"", "both_"}) {
    for (const char* const way : {"read", "write"}) {
      EXPECT_GT(machine["disk"][std::string(both) + way + "_bytes_per_s"], 0);
    }
  }
}

// All kernels that are measured, which have to include those of steps.
std::set<std::string> KernelsOf(const BenchReport& report) {
  std::set<std::string> kernels;
  for (const OpMeasure& op : report.ops) kernels.emplace(op.work.kernel);
  for (const StepMeasure& step : report.steps) {
    for (const KernelShare& share : step.kernels) {
      if (share.kernel == "norm" || share.kernel == "fill_zero" ||
          share.kernel == "copy") {
        continue;
      }
      EXPECT_TRUE(kernels.contains(share.kernel)) << share.kernel;
    }
  }
  return kernels;
}

TEST_F(QuickBench, EveryKernelOfAStepIsMeasuredByItself) {
  const std::set<std::string> kernels = KernelsOf(Report());
  EXPECT_TRUE(kernels.contains("sum_squares"));
  EXPECT_TRUE(kernels.contains("dropout"));
}

TEST_F(QuickBench, PercentagesFollowFromTimeAndWork) {
  const json report = Json();
  std::map<std::string, double> peaks;
  for (const json& peak : report["machine"]["matmul"]) {
    peaks[peak["dtype"]] = peak["flops_per_s"];
  }
  const double read = report["machine"]["bandwidth"]["read_bytes_per_s"];
  const double triad = report["machine"]["bandwidth"]["triad_bytes_per_s"];
  const double per_written = std::max(3 / triad - 2 / read, 1 / read);
  for (const json& op : report["ops"]) {
    const double seconds = op["seconds"]["median"];
    const double flops = op["flops"], bytes = op["read_bytes"];
    const double memory =
        bytes / read + op["written_bytes"].get<double>() * per_written;
    const double arithmetic = flops / peaks.at(op["dtype"]);
    EXPECT_GT(seconds, 0);
    EXPECT_GE(op["seconds"]["samples"], 3);
    EXPECT_NEAR(op["percent_of_peak"].get<double>() /
                    (100 * std::max(memory, arithmetic) / seconds),
                1, 1e-9)
        << op["name"];
    EXPECT_EQ(op["bound"], memory > arithmetic ? "memory" : "arithmetic");
    EXPECT_GT(flops + bytes, 0) << op["name"];
  }
}

TEST_F(QuickBench, ThePartsOfAStepMakeAStep) {
  for (const StepMeasure& s : Report().steps) {
    SCOPED_TRACE(ToString(s.step));
    const StepParts& p = s.parts;
    for (const double part :
         {p.forward, p.head, p.backward, p.norm, p.update}) {
      EXPECT_GT(part, 0);
    }
    EXPECT_GE(p.reduce, 0);
    EXPECT_GE(p.zeroing, 0);
    // Medians of parts do not add up to the median of sums, on a busy machine
    // by far; but they are of one size.
    EXPECT_GT(p.total(), 0.05 * s.seconds.median);
    EXPECT_LT(p.total(), 20 * s.seconds.median);
    double share = 0;
    for (const KernelShare& k : s.kernels) share += k.share;
    EXPECT_GT(share, 0.01);
    EXPECT_LT(share, 20);
    const double tokens = static_cast<double>(s.step.batch * s.step.seq);
    EXPECT_DOUBLE_EQ(s.tokens_per_s, tokens / s.seconds.median);
    EXPECT_NEAR(s.loss, std::log(256), 1);
    EXPECT_GE(s.peak_resident, s.memory.total());
    EXPECT_EQ(s.allocated_bytes, s.memory.allocated());
  }
}

TEST_F(QuickBench, FlopsAreThoseOfTheModel) {
  for (const StepMeasure& s : Report().steps) {
    if (s.step.shape != "gpt-tiny") continue;
    // Each weight of a product is used three times; so are scores and values,
    // of half the pairs and the diagonal. The position table is not a product.
    const double tokens = 64, layers = 2, dim = 32, ffn = 64, vocab = 256;
    const double seq = 32;
    const double weights =
        layers * (4 * dim * dim + 2 * dim * ffn) + dim * vocab;
    const double attention = 3 * 4 * layers * dim * (seq + 1) / 2;
    EXPECT_DOUBLE_EQ(s.flops, tokens * (6 * weights + attention));
  }
}

TEST_F(QuickBench, BlocksThatShareHaveLessToUpdate) {
  std::map<std::string, double> written;
  std::map<std::string, int64_t> unique;
  for (const StepMeasure& s : Report().steps) {
    if (s.step.shape != "gpt-tiny" || s.step.precision != "fp32") continue;
    unique[s.step.share] = s.unique_parameters;
    for (const KernelShare& k : s.kernels) {
      if (k.layer == "blocks" && k.kernel == "adamw") {
        written[s.step.share] = k.work.written;
      }
    }
  }
  ASSERT_EQ(written.size(), 2u);
  EXPECT_DOUBLE_EQ(written["none"], 2 * written["all"]);
  EXPECT_LT(unique["all"], unique["none"]);
  const json gains = Json()["sharing"];
  ASSERT_GE(gains.size(), 2u);
  for (const json& gain : gains) {
    EXPECT_EQ(gain["share"], "all");
    EXPECT_DOUBLE_EQ(gain["ratio"], gain["separate_seconds"].get<double>() /
                                        gain["shared_seconds"].get<double>());
  }
}

// A block of two, beside both.
TEST(Bench, StepsOfFewerBlocksStandBesideThoseOfAll) {
  const auto report = RunBench({.ops = false,
                                .shapes = {"gpt-tiny"},
                                .quick = true,
                                .share = "none",
                                .precision = "fp32",
                                .depth = 1},
                               BuiltInModels(), [](const std::string&) {});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->steps.size(), 2);
  const StepMeasure& all = report->steps[0];
  const StepMeasure& some = report->steps[1];
  EXPECT_EQ(ToString(some.step),
            "gpt-tiny, 2 x 32 tokens, share none, depth 1, fp32");
  const double block = all.flops - some.flops;
  const double dim = 32, ffn = 64, seq = 32;
  EXPECT_DOUBLE_EQ(block, 64 * (6 * (4 * dim * dim + 2 * dim * ffn) +
                                3 * 4 * dim * (seq + 1) / 2));
  const std::vector<DepthRatios> ratios = RatiosOfDepth(report->steps);
  ASSERT_EQ(ratios.size(), 1);
  EXPECT_EQ(ratios[0].step, some.step);
  EXPECT_EQ(ratios[0].flops, some.flops / all.flops);
  EXPECT_LT(ratios[0].flops, 1);
  EXPECT_LT(ratios[0].bytes, 1);
  EXPECT_EQ(ratios[0].bytes, ratios[0].allocated);
  EXPECT_EQ(ratios[0].seconds, some.seconds.median / all.seconds.median);
  const json parsed = json::parse(ToJson(*report));
  ASSERT_EQ(parsed["depths"].size(), 1);
  EXPECT_EQ(parsed["depths"][0]["depth"], 1);
  EXPECT_EQ(parsed["depths"][0]["planned_flops_ratio"], ratios[0].flops);
  EXPECT_EQ(parsed["depths"][0]["seconds_ratio"], ratios[0].seconds);
  EXPECT_TRUE(parsed["sharing"].empty());
  EXPECT_EQ(parsed["steps"][0]["depth"], 0);
  EXPECT_THAT(ToText(*report),
              AllOf(HasSubstr("  " + ToString(some.step) + "  "),
                    HasSubstr("FLOPs planned 0."), HasSubstr("time measured "),
                    HasSubstr("memory planned 0.")));
  const auto again = ReadReport(ToJson(*report), "a.json");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->steps[1].step, some.step);
}

// A token that all others are is soon foreseen.
TEST(Bench, TokensAreOfAFewIds) {
  const auto step_of = [](int64_t distinct) {
    const auto report = RunBench({.ops = false,
                                  .shapes = {"moe-tiny"},
                                  .quick = true,
                                  .share = "none",
                                  .precision = "fp32",
                                  .distinct = distinct,
                                  .repetitions = 40},
                                 BuiltInModels(), [](const std::string&) {});
    EXPECT_TRUE(report.ok()) << report.status();
    const auto again = ReadReport(ToJson(*report), "a.json");
    EXPECT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->steps[0].step, report->steps[0].step);
    return report->steps.at(0);
  };
  const StepMeasure one = step_of(1), all = step_of(0), more = step_of(300);
  EXPECT_LT(one.loss, all.loss - 0.05);
  EXPECT_EQ(more.loss, all.loss);  // there are 256
  EXPECT_EQ(ToString(one.step),
            "moe-tiny, 2 x 32 tokens of 1 ids, share none, fp32");
  EXPECT_EQ(ToString(all.step), "moe-tiny, 2 x 32 tokens, share none, fp32");
}

// What an update reads and writes is what parameters take, however they are
// kept.
TEST(Bench, UpdatesMoveTheBytesOfTheAccount) {
  for (const std::string gradients : {"fp32", "bf16"}) {
    for (const std::string master : {"fp32", "split", "none"}) {
      const auto report = RunBench(
          {.ops = false,
           .shapes = {"gpt-tiny"},
           .quick = true,
           .share = "none",
           .precision = "bf16",
           .sets = {"run.gradients=" + gradients, "run.master=" + master}},
          BuiltInModels(), [](const std::string&) {});
      ASSERT_TRUE(report.ok()) << report.status();
      ASSERT_EQ(report->steps.size(), 1);
      const MemoryAccount& memory = report->steps[0].memory;
      double read = 0, written = 0;
      for (const KernelShare& k : report->steps[0].kernels) {
        if (k.kernel != "adamw") continue;
        read += k.work.read;
        written += k.work.written;
      }
      const auto weights = static_cast<double>(memory.weights);
      const auto state = static_cast<double>(memory.state);
      const auto all = static_cast<double>(memory.gradients) + state +
                       (master == "fp32" ? 0 : weights);
      // But for padding.
      EXPECT_NEAR(read / all, 1, 0.02) << gradients << " " << master;
      EXPECT_NEAR(written / (state + weights), 1, 0.02) << master;
    }
  }
}

TEST(Bench, KernelsOfExpertsAreMeasured) {
  const auto report = RunBench({.shapes = {"moe-tiny"},
                                .quick = true,
                                .share = "none",
                                .sets = {"model.router.aux_loss=0.01"}},
                               BuiltInModels(), [](const std::string&) {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(KernelsOf(*report),
              ::testing::IsSupersetOf({"route", "balance", "grouped_matmul"}));
  for (const OpMeasure& op : report->ops) EXPECT_GT(op.peak, 0) << op.name;
  std::set<std::string> routed;
  for (const KernelShare& share : report->steps.at(0).kernels) {
    routed.insert(share.kernel);
  }
  EXPECT_THAT(routed,
              ::testing::IsSupersetOf({"assign_rows", "expert_act_backward"}));
}

// Of other sizes and with planes at home on the host: a time and the memory,
// no parts.
TEST(Bench, StepsWithPlanesOnTheHostHaveTimeAndMemory) {
  for (const char* const offload :
       {"weights=\"host\",update=\"host\"", "device=\"700KiB\""}) {
    const auto report =
        RunBench({.ops = false,
                  .shapes = {"llama-tiny"},
                  .quick = true,
                  .share = "none",
                  .precision = "bf16",
                  .sets = {"model.layers=3", "run.micro_batch=1",
                           absl::StrCat("stage.0.offload={", offload, "}")}},
                 BuiltInModels(), [](const std::string&) {});
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->steps.size(), 1);
    const StepMeasure& step = report->steps[0];
    EXPECT_GT(step.memory.host, 0) << offload;
    EXPECT_EQ(step.memory.allocated(), step.allocated_bytes);
    EXPECT_GT(step.tokens_per_s, 0);
    EXPECT_TRUE(step.kernels.empty());
    const std::string text = ToText(*report);
    EXPECT_THAT(text, HasSubstr(" tokens/s\n  memory: "));
    EXPECT_THAT(text, Not(HasSubstr("nan")));
  }
}

TEST_F(QuickBench, AllFormsOfAStepAreMeasured) {
  std::set<std::string> forms;
  for (const StepMeasure& s : Report().steps) forms.insert(ToString(s.step));
  EXPECT_EQ(forms.size(), Report().steps.size());
  EXPECT_TRUE(forms.contains("gpt-tiny, 2 x 32 tokens, share none, fp32"));
  EXPECT_TRUE(forms.contains("llama-tiny, 2 x 32 tokens, share all, fp32"));
  const bool bf16 = FindKernels(DeviceKind::kCpu, DType::kBF16) != nullptr;
  EXPECT_EQ(forms.size(), bf16 ? 8u : 4u);
}

TEST_F(QuickBench, TheTableSaysWhatTheJsonSays) {
  const std::string text = ToText(Report());
  EXPECT_THAT(text, AllOf(HasSubstr("machine: " + Report().machine.processor),
                          HasSubstr("attention backward"),
                          HasSubstr("gpt-tiny, 2 x 32 tokens, share all"),
                          HasSubstr("of the matmul peak"),
                          HasSubstr("update, norm, reduction and zeroing")));
  EXPECT_THAT(*told_, ::testing::Contains(HasSubstr("llama-tiny")));
}

TEST(BenchOptions, WhatIsWrongIsToldBeforeAnythingIsMeasured) {
  const struct {
    BenchOptions options;
    const char* message;
  } cases[] = {
      {{.shapes = {"gpt-11m"}}, "did you mean 'gpt-10m'"},
      {{.shapes = {"gpt-tiny"}, .share = "groups:3"}, "groups"},
      {{.shapes = {"gpt-tiny"}, .depth = 3},
       "stage[0].depth: 3 is more than model.layers 2"},
      {{.scratch = "/no/such/folder", .quick = true}, "--scratch"},
  };
  for (const auto& [options, message] : cases) {
    int told = 0;
    const auto report =
        RunBench(options, BuiltInModels(), [&](const std::string&) { ++told; });
    EXPECT_TRUE(absl::IsInvalidArgument(report.status())) << report.status();
    EXPECT_THAT(std::string(report.status().message()), HasSubstr(message));
    EXPECT_LE(told, 1);
  }
}

}  // namespace
}  // namespace delink::bench::bench_test
