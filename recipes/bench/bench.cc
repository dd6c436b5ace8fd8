#include "recipes/bench/bench.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "layers/kernels/find_kernels.h"
#include "recipes/run/environment.h"

namespace delink::bench {
namespace {

using Names = std::vector<std::string>;

bool Has(DType dtype) {
  return FindKernels(DeviceKind::kCpu, dtype) != nullptr;
}

std::vector<DType> DTypes() {
  std::vector<DType> dtypes = {DType::kF32};
  if (Has(DType::kBF16)) dtypes.push_back(DType::kBF16);
  return dtypes;
}

// The one that was asked for, or all.
template <typename T>
std::vector<T> Forms(const std::optional<T>& asked, std::vector<T> all) {
  return asked ? std::vector<T>{*asked} : std::move(all);
}

Names StepShapes(const BenchOptions& options) {
  if (!options.shapes.empty()) return options.shapes;
  if (options.quick) return {"gpt-tiny", "llama-tiny"};
  return {"gpt-10m", "llama-10m", "gpt-124m"};
}

Names OpShapes(const BenchOptions& options) {
  if (!options.shapes.empty()) return options.shapes;
  return {options.quick ? "gpt-tiny" : "gpt-124m"};
}

// All steps to measure, each one that `train` would take.
absl::StatusOr<std::vector<StepCase>> StepCases(const BenchOptions& options,
                                                const ModelList& models) {
  Names precisions = {"fp32"};
  if (Has(DType::kBF16)) precisions.push_back("bf16");
  std::vector<StepCase> cases;
  for (const std::string& name : StepShapes(options)) {
    DELINK_ASSIGN_OR_RETURN(const ModelShape shape, FindModelShape(name));
    const std::vector<int64_t> lengths = options.quick
                                             ? std::vector<int64_t>{32}
                                             : std::vector<int64_t>{256, 1024};
    for (const int64_t seq : Forms(options.seq, lengths)) {
      const int64_t batch = std::max<int64_t>(1, shape.step_tokens / seq);
      for (const auto& precision : Forms(options.precision, precisions)) {
        for (const auto& share : Forms(options.share, Names{"none", "all"})) {
          cases.push_back({.shape = name,
                           .seq = seq,
                           .batch = options.batch.value_or(batch),
                           .share = share,
                           .precision = precision,
                           .recompute = options.recompute.value_or("none")});
          DELINK_RETURN_IF_ERROR(RecipeOf(cases.back(), models).status());
        }
      }
    }
  }
  return cases;
}

absl::StatusOr<std::vector<OpCase>> AllOps(const BenchOptions& options) {
  std::vector<OpCase> cases;
  for (const std::string& name : OpShapes(options)) {
    DELINK_ASSIGN_OR_RETURN(const ModelShape shape, FindModelShape(name));
    for (const DType dtype : DTypes()) {
      for (OpCase& op : OpCases(shape, dtype)) cases.push_back(std::move(op));
    }
  }
  return cases;
}

StepOptions StepOptionsOf(const BenchOptions& options) {
  StepOptions steps;
  if (options.quick) steps = {.seconds = 0.02, .least = 3};
  steps.exactly = options.repetitions;
  return steps;
}

std::string ScratchFolder(const BenchOptions& options) {
  if (!options.scratch.empty()) return options.scratch;
  std::error_code error;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path(error);
  return error ? "." : path.string();
}

}  // namespace

absl::StatusOr<BenchReport> RunBench(const BenchOptions& options,
                                     const ModelList& models,
                                     const BenchProgress& progress) {
  std::vector<OpCase> ops;
  std::vector<StepCase> steps;
  if (options.ops) {
    DELINK_ASSIGN_OR_RETURN(ops, AllOps(options));
  }
  if (options.steps) {
    DELINK_ASSIGN_OR_RETURN(steps, StepCases(options, models));
  }
  BenchReport report{.version = "delink " + DelinkVersion(),
                     .time = UtcNow(),
                     .quick = options.quick};
  progress("measuring the machine");
  DELINK_ASSIGN_OR_RETURN(report.machine,
                          MeasureMachine({.threads = options.threads,
                                          .dtypes = DTypes(),
                                          .folder = ScratchFolder(options),
                                          .quick = options.quick}));
  if (!ops.empty())
    progress(absl::StrCat("measuring ", ops.size(), " kernels"));
  for (const OpCase& op : ops) {
    DELINK_ASSIGN_OR_RETURN(OpMeasure measure,
                            MeasureOp(op, report.machine, options.quick));
    report.ops.push_back(std::move(measure));
  }
  for (const StepCase& step : steps) {
    progress(absl::StrCat("measuring steps of ", ToString(step)));
    DELINK_ASSIGN_OR_RETURN(
        StepMeasure measure,
        MeasureStep(step, models, report.machine, StepOptionsOf(options)));
    report.steps.push_back(std::move(measure));
  }
  return report;
}

std::vector<SharingGain> SharingGains(const std::vector<StepMeasure>& steps) {
  std::vector<SharingGain> gains;
  for (const StepMeasure& separate : steps) {
    if (separate.step.share != "none") continue;
    for (const StepMeasure& shared : steps) {
      StepCase same = shared.step;
      same.share = "none";
      if (shared.step.share == "none" || same != separate.step) continue;
      gains.push_back({.step = separate.step,
                       .share = shared.step.share,
                       .separate = separate.blocks.total(),
                       .shared = shared.blocks.total()});
    }
  }
  return gains;
}

}  // namespace delink::bench
