// `delink bench`: what this machine can do, how near each kernel and whole
// training steps come to it, and what has changed since another day.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "recipes/models/model_list.h"
#include "tools/bench/machine.h"
#include "tools/bench/op_suite.h"
#include "tools/bench/step_suite.h"
#include "tools/bench/update_suite.h"

namespace delink::bench {

struct BenchOptions {
  bool ops = true;
  bool steps = true;
  bool updates = false;  // of AdamW on the host, on one thread and on `threads`
  DeviceKind device = DeviceKind::kCpu;  // or kCuda
  // Names of ModelShapes. Empty: of steps gpt-10m, llama-10m and gpt-124m, on a
  // GPU gpt-124m, qwen-0.5b and qwen-1.5b; of kernels gpt-124m; with `quick`
  // the tiny ones.
  std::vector<std::string> shapes;
  int threads = 1;      // that kernels use, on the CPU
  std::string scratch;  // folder where the disk is measured; empty: temporary
  bool quick = false;   // seconds instead of minutes; figures are rough
  // Of the steps; each that is not given is measured in all its forms: 256 and
  // 1024 tokens, share none and all, fp32 and bf16; no recompute. On a GPU 1024
  // tokens and bf16, and what the largest shapes need of recompute.
  std::optional<int64_t> seq, batch;
  std::optional<std::string> share, precision, recompute;
  // Also steps that visit so many blocks, beside those that visit all.
  std::optional<int64_t> depth;
  std::vector<std::string> sets;  // other keys of their recipes, KEY=VALUE
  int64_t repetitions = 0;  // steps of each; 0: as many as take some seconds
};

struct BenchReport {
  std::string version;
  std::string time;  // UTC, "2026-01-31T12:00:00Z"
  bool quick = false;
  Machine machine;
  std::vector<OpMeasure> ops;
  std::vector<StepMeasure> steps;
  std::vector<UpdateMeasure> updates;
};

// Told what is about to be measured.
using BenchProgress = std::function<void(const std::string&)>;

// InvalidArgument, before anything is measured, where the options are wrong.
absl::StatusOr<BenchReport> RunBench(const BenchOptions& options,
                                     const ModelList& models,
                                     const BenchProgress& progress);

// Blocks that share against blocks that do not, all else equal.
struct SharingGain {
  StepCase step;  // the one that does not share
  std::string share;
  double separate = 0, shared = 0;  // BlockUpkeep::total, seconds of a step
};
std::vector<SharingGain> SharingGains(const std::vector<StepMeasure>& steps);

// A step that visits some blocks over the one that visits all, all else equal.
struct DepthRatios {
  StepCase step;                      // the one that visits some
  double flops = 0, bytes = 0;        // as planned; bytes that are allocated
  double seconds = 0, allocated = 0;  // as measured
};
std::vector<DepthRatios> RatiosOfDepth(const std::vector<StepMeasure>& steps);

// Tables for people.
std::string ToText(const BenchReport& report);
std::string ToText(const std::vector<UpdateMeasure>& updates);
// One JSON object; docs/benchmarks.md names its keys.
std::string ToJson(const BenchReport& report);
// Back again: what Compare needs of it (no kernels of steps, no account).
// InvalidArgument, naming `origin`, where the text is not whole or not such an
// object.
absl::StatusOr<BenchReport> ReadReport(const std::string& text,
                                       const std::string& origin);

}  // namespace delink::bench
