#include "tools/bench/bench.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "layers/kernels/find_kernels.h"
#include "recipes/record/environment.h"
#include "recipes/run/setup/choose_device.h"

namespace delink::bench {
namespace {

using Names = std::vector<std::string>;

bool Has(DeviceKind device, DType dtype) {
  return FindKernels(device, dtype) != nullptr;
}

std::vector<DType> DTypes(DeviceKind device) {
  std::vector<DType> dtypes;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    if (Has(device, dtype)) dtypes.push_back(dtype);
  }
  return dtypes;
}

// The given value, or all.
template <typename T>
std::vector<T> Forms(const std::optional<T>& asked, std::vector<T> all) {
  return asked ? std::vector<T>{*asked} : std::move(all);
}

Names StepShapes(const BenchOptions& options) {
  if (!options.shapes.empty()) return options.shapes;
  if (options.quick) return {"gpt-tiny", "llama-tiny"};
  if (IsCuda(options.device)) return {"gpt-124m", "qwen-0.5b", "qwen-1.5b"};
  return {"gpt-10m", "llama-10m", "gpt-124m"};
}

Names OpShapes(const BenchOptions& options) {
  if (!options.shapes.empty()) return options.shapes;
  return {options.quick ? "gpt-tiny" : "gpt-124m"};
}

// All steps to measure. Each is valid for `train`.
absl::StatusOr<std::vector<StepCase>> StepCases(const BenchOptions& options,
                                                const ModelList& models) {
  const bool gpu = IsCuda(options.device);
  Names precisions;
  if (!gpu || options.quick) precisions.push_back("fp32");
  if (Has(options.device, DType::kBF16)) precisions.push_back("bf16");
  std::vector<int64_t> lengths = {256, 1024};
  if (gpu) lengths = {1024};
  if (options.quick) lengths = {32};
  std::vector<StepCase> cases;
  for (const std::string& name : StepShapes(options)) {
    DELINK_ASSIGN_OR_RETURN(const ModelShape shape, FindModelShape(name));
    for (const int64_t seq : Forms(options.seq, lengths)) {
      const int64_t batch =
          std::max<int64_t>(1, shape.StepTokens(options.device) / seq);
      for (const auto& precision : Forms(options.precision, precisions)) {
        for (const auto& share : Forms(options.share, Names{"none", "all"})) {
          cases.push_back({.shape = name,
                           .seq = seq,
                           .batch = options.batch.value_or(batch),
                           .share = share,
                           .precision = precision,
                           .recompute = options.recompute.value_or(
                               gpu ? shape.recompute : StepCase().recompute),
                           .distinct = options.distinct,
                           .sets = options.sets});
          if (!options.depth) continue;
          cases.push_back(cases.back());
          cases.back().depth = *options.depth;
        }
      }
    }
  }
  for (const StepCase& step : cases) {
    DELINK_RETURN_IF_ERROR(RecipeOf(step, models).status());
  }
  return cases;
}

absl::StatusOr<std::vector<OpCase>> AllOps(const BenchOptions& options) {
  std::vector<OpCase> cases;
  for (const std::string& name : OpShapes(options)) {
    DELINK_ASSIGN_OR_RETURN(const ModelShape shape, FindModelShape(name));
    for (const DType dtype : DTypes(options.device)) {
      for (OpCase& op : OpCases(shape, options.device, dtype)) {
        cases.push_back(std::move(op));
      }
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

UpdateOptions UpdateOptionsOf(const BenchOptions& options) {
  UpdateOptions updates;
  if (options.quick) updates = {.parameters = 1 << 20, .turns = 3};
  if (options.threads > 1) updates.threads.push_back(options.threads);
  return updates;
}

// The machine and the kernels. The target's memory is free again for the steps.
absl::Status MeasureTarget(const BenchOptions& options,
                           const std::vector<OpCase>& ops,
                           const BenchProgress& progress, BenchReport* report) {
  DELINK_ASSIGN_OR_RETURN(Target target, Target::Open(options.device));
  progress("measuring the machine");
  DELINK_ASSIGN_OR_RETURN(
      report->machine, MeasureMachine(target, {.threads = options.threads,
                                               .dtypes = DTypes(options.device),
                                               .folder = options.scratch,
                                               .quick = options.quick}));
  if (!ops.empty())
    progress(absl::StrCat("measuring ", ops.size(), " kernels"));
  for (const OpCase& op : ops) {
    DELINK_ASSIGN_OR_RETURN(
        OpMeasure measure,
        MeasureOp(op, target, report->machine, options.quick));
    report->ops.push_back(std::move(measure));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BenchReport> RunBench(const BenchOptions& options,
                                     const ModelList& models,
                                     const BenchProgress& progress) {
  if (options.updates && IsCuda(options.device)) {
    return absl::InvalidArgumentError(
        "--suite update measures the host; leave --device cuda away");
  }
  // Without such a device there are no kernels to list.
  DELINK_RETURN_IF_ERROR(NewDeviceOf(options.device).status());
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
  DELINK_RETURN_IF_ERROR(MeasureTarget(options, ops, progress, &report));
  for (const StepCase& step : steps) {
    progress(absl::StrCat("measuring steps of ", ToString(step)));
    DELINK_ASSIGN_OR_RETURN(
        StepMeasure measure,
        MeasureStep(step, options.device, models, report.machine,
                    StepOptionsOf(options)));
    report.steps.push_back(std::move(measure));
  }
  if (options.updates) {
    DELINK_ASSIGN_OR_RETURN(report.updates,
                            MeasureUpdates(UpdateOptionsOf(options), progress));
  }
  return report;
}

std::vector<SharingGain> SharingGains(const std::vector<StepMeasure>& steps) {
  std::vector<SharingGain> gains;
  for (const StepMeasure& separate : steps) {
    if (separate.step.share != "none" || separate.step.depth > 0) continue;
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

std::vector<DepthRatios> RatiosOfDepth(const std::vector<StepMeasure>& steps) {
  const auto over = [](int64_t some, int64_t all) {
    return static_cast<double>(some) / static_cast<double>(all);
  };
  std::vector<DepthRatios> ratios;
  for (const StepMeasure& some : steps) {
    StepCase whole = some.step;
    whole.depth = 0;
    for (const StepMeasure& all : steps) {
      if (some.step.depth == 0 || all.step != whole) continue;
      ratios.push_back(
          {.step = some.step,
           .flops = some.flops / all.flops,
           .bytes = over(some.memory.allocated(), all.memory.allocated()),
           .seconds = some.seconds.median / all.seconds.median,
           .allocated = over(some.allocated_bytes, all.allocated_bytes)});
    }
  }
  return ratios;
}

}  // namespace delink::bench
