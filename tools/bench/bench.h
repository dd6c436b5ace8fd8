// `delink bench`: measures the machine's peak speeds, compares kernels and
// whole training steps with them, and compares two reports.
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
  bool updates = false;  // AdamW on the host, on one thread and on `threads`
  DeviceKind device = DeviceKind::kCpu;  // or kCuda
  // Names of ModelShapes. Empty: the default shapes. For steps these are
  // gpt-10m, llama-10m and gpt-124m, and on a GPU gpt-124m, qwen-0.5b and
  // qwen-1.5b; for kernels gpt-124m; with `quick` the tiny ones.
  std::vector<std::string> shapes;
  int threads = 1;      // of kernels, on the CPU
  std::string scratch;  // folder where the disk is measured; empty: temporary
  bool quick = false;   // seconds instead of minutes; figures are rough
  // Of the steps. If a value is not set, all its defaults are measured: 256 and
  // 1024 tokens, share none and all, fp32 and bf16; recompute norm+activation.
  // On a GPU the defaults are 1024 tokens, bf16, and the shape's own recompute.
  std::optional<int64_t> seq, batch;
  std::optional<std::string> share, precision, recompute;
  // If set, steps that visit only this many blocks are measured too.
  std::optional<int64_t> depth;
  int64_t distinct = 0;           // StepCase::distinct
  std::vector<std::string> sets;  // other keys of their recipes, KEY=VALUE
  int64_t repetitions = 0;        // steps of each case; 0: some seconds of them
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

// Called with the name of each measurement before it starts.
using BenchProgress = std::function<void(const std::string&)>;

// If the options are wrong, returns InvalidArgument before it measures.
absl::StatusOr<BenchReport> RunBench(const BenchOptions& options,
                                     const ModelList& models,
                                     const BenchProgress& progress);

// Blocks that share compared with blocks that do not, all else equal.
struct SharingGain {
  StepCase step;  // the one that does not share
  std::string share;
  double separate = 0, shared = 0;  // BlockUpkeep::total, seconds of a step
};
std::vector<SharingGain> SharingGains(const std::vector<StepMeasure>& steps);

// A step that visits some blocks, relative to the one that visits all, all else
// equal.
struct DepthRatios {
  StepCase step;                      // the one that visits some
  double flops = 0, bytes = 0;        // planned; bytes are allocated bytes
  double seconds = 0, allocated = 0;  // measured
};
std::vector<DepthRatios> RatiosOfDepth(const std::vector<StepMeasure>& steps);

// Tables for people.
std::string ToText(const DiskSpeed& disk);
std::string ToText(const BenchReport& report);
std::string ToText(const std::vector<UpdateMeasure>& updates);
// One JSON object; docs/bench.md lists its keys.
std::string ToJson(const BenchReport& report);
// Reads the part of ToJson's text that Compare needs (no kernels of steps, no
// memory account). If the text is incomplete or not such an object, returns
// InvalidArgument with `origin` in the message.
absl::StatusOr<BenchReport> ReadReport(const std::string& text,
                                       const std::string& origin);

}  // namespace delink::bench
