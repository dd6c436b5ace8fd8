// A report as tables.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "recipes/record/progress.h"
#include "recipes/record/stage_text.h"
#include "tools/bench/bench.h"

namespace delink::bench {
namespace {

// Kernels with a smaller share of a step are not listed; --json has all.
constexpr double kLeastShare = 0.005;

std::string Milliseconds(double seconds) {
  const double ms = 1e3 * seconds;
  return absl::StrFormat("%.*f", ms < 1 ? 3 : ms < 100 ? 2 : 0, ms);
}

std::string MachineText(const Machine& m) {
  const std::string with =
      m.host.empty()
          ? absl::StrFormat("%d cores, %d threads", m.cores, m.threads)
          : absl::StrFormat("beside %d cores of %s", m.cores, m.host);
  std::string text = absl::StrFormat(
      "machine: %s, %s, %s of memory, largest cache %s\n", m.processor, with,
      FormatBytes(m.memory_bytes), FormatBytes(m.cache_bytes));
  for (const MatmulPeak& peak : m.matmul) {
    absl::StrAppend(
        &text, absl::StrFormat("  matmul %-5s %8.1f GFLOP/s  (%d x %d)\n",
                               ToString(peak.dtype), peak.flops_per_s / kGiga,
                               peak.size, peak.size));
  }
  absl::StrAppend(
      &text,
      m.device == "cpu"
          ? absl::StrFormat("  memory       %8.1f GB/s read, %.1f GB/s triad\n",
                            m.bandwidth.read / kGiga, m.bandwidth.triad / kGiga)
          : absl::StrFormat(
                "  memory       %8.1f GB/s copied (read + written)\n",
                m.bandwidth.read / kGiga),
      "  ", ToText(m.disk));
  if (m.load > kBusyLoad * static_cast<double>(m.cores)) {
    absl::StrAppend(
        &text, absl::StrFormat("  the machine was busy (load %.1f): figures "
                               "are no more than a lower bound\n",
                               m.load));
  }
  return text;
}

// GFLOP/s if arithmetic bounds the work, else GB/s.
std::string Speed(const Work& work, double seconds, bool memory_bound) {
  return memory_bound
             ? absl::StrFormat("%8.1f GB/s   ", work.bytes() / seconds / kGiga)
             : absl::StrFormat("%8.1f GFLOP/s", work.flops / seconds / kGiga);
}

std::string OpsText(const std::vector<OpMeasure>& ops) {
  if (ops.empty()) return "";
  std::string text =
      absl::StrFormat("\n%-28s %-24s %-5s %9s %6s %16s  %s\n", "kernel",
                      "shape", "type", "ms", "+-", "speed", "of peak");
  for (const OpMeasure& op : ops) {
    absl::StrAppend(
        &text,
        absl::StrFormat(
            "%-28s %-24s %-5s %9s %5.1f%% %16s  %5.1f%%\n", op.name, op.shape,
            ToString(op.dtype), Milliseconds(op.seconds.median),
            100 * op.seconds.spread(),
            Speed(op.work, op.seconds.median, op.memory_bound), 100 * op.peak));
  }
  return text;
}

// The planned value, the measured value and their difference.
std::string Beside(int64_t planned, int64_t measured) {
  const double ratio =
      static_cast<double>(measured) / static_cast<double>(planned);
  return absl::StrFormat("%s and %s (%+.2f%%)", FormatBytes(planned),
                         FormatBytes(measured), 100 * (ratio - 1));
}

std::string PartsText(const StepMeasure& s) {
  const std::pair<const char*, double> parts[] = {
      {"forward", s.parts.forward}, {"backward", s.parts.backward},
      {"head", s.parts.head},       {"update", s.parts.update},
      {"norm", s.parts.norm},       {"reduce", s.parts.reduce},
      {"zeroing", s.parts.zeroing}, {"other", s.parts.other}};
  std::string text = "  parts:";
  for (const auto& [name, seconds] : parts) {
    absl::StrAppend(&text, absl::StrFormat(" %s %.1f%%", name,
                                           100 * seconds / s.parts.total()));
  }
  return text + "\n";
}

// Summary of all kernels; empty if none were recorded in the step.
std::string KernelsText(const StepMeasure& s) {
  if (s.kernels.empty()) return "\n";
  return absl::StrFormat(
             ", %.1f GFLOP/s: %.1f%% of the matmul peak, %.1f%% of the speed "
             "of light\n",
             s.flops / s.seconds.median / kGiga, 100 * s.peak, 100 * s.light) +
         PartsText(s);
}

std::string StepText(const StepMeasure& s) {
  std::string text = absl::StrCat("\n", ToString(s.step), "\n");
  absl::StrAppend(
      &text, "  ",
      ParametersText(s.unique_parameters, s.virtual_parameters,
                     s.active_parameters),
      "\n",
      absl::StrFormat("  %s ms a step (+- %.1f%%, %d steps), %.0f tokens/s",
                      Milliseconds(s.seconds.median), 100 * s.seconds.spread(),
                      s.seconds.samples, s.tokens_per_s),
      KernelsText(s), "  memory: ", ToString(s.memory), "\n",
      "  planned and measured: ",
      Beside(s.memory.allocated(), s.allocated_bytes), " allocated",
      s.device_bytes == 0
          ? ""
          : absl::StrCat(", ", Beside(s.memory.total(), s.device_bytes),
                         " of the GPU"),
      "; peak resident ", FormatBytes(s.peak_resident), "\n");
  for (const KernelShare& k : s.kernels) {
    if (k.share < kLeastShare) continue;
    absl::StrAppend(
        &text, absl::StrFormat("  %5.1f%%  %-7s %-27s %6.0f calls %9s ms %16s  "
                               "%5.1f%% of peak\n",
                               100 * k.share, k.layer, k.kernel, k.calls,
                               Milliseconds(k.seconds),
                               Speed(k.work, k.seconds, k.memory_bound),
                               100 * k.peak));
  }
  return text;
}

std::string GainsText(const std::vector<SharingGain>& gains) {
  if (gains.empty()) return "";
  std::string text =
      "\nupdate, norm, reduction and zeroing of the blocks' parameters, ms a "
      "step\n";
  for (const SharingGain& gain : gains) {
    const StepCase& s = gain.step;
    const std::string what = absl::StrFormat("%s, %d x %d tokens, %s", s.shape,
                                             s.batch, s.seq, s.precision);
    absl::StrAppend(
        &text, absl::StrFormat(
                   "  %-36s  share none %8s  share %s %8s  1 / %.1f\n", what,
                   Milliseconds(gain.separate), gain.share,
                   Milliseconds(gain.shared), gain.separate / gain.shared));
  }
  return text;
}

std::string RatiosText(const std::vector<DepthRatios>& ratios) {
  if (ratios.empty()) return "";
  std::string text =
      "\nratios of steps that visit some blocks to steps that visit all\n";
  for (const DepthRatios& r : ratios) {
    absl::StrAppend(
        &text, absl::StrFormat(
                   "  %-52s  FLOPs planned %.3f, time measured %.3f; memory "
                   "planned %.3f, measured %.3f\n",
                   ToString(r.step), r.flops, r.seconds, r.bytes, r.allocated));
  }
  return text;
}

}  // namespace

std::string ToText(const DiskSpeed& disk) {
  return absl::StrFormat(
      "disk         %8.2f GB/s written, %.2f GB/s read; both at once %.2f, "
      "%.2f%s\n",
      disk.write / kGiga, disk.read / kGiga, disk.both_write / kGiga,
      disk.both_read / kGiga, disk.direct ? "" : " (page cache)");
}

std::string ToText(const BenchReport& report) {
  std::string text =
      absl::StrCat(report.version, ", ", report.time,
                   report.quick ? ", quick and rough" : "", "\n",
                   MachineText(report.machine), OpsText(report.ops));
  for (const StepMeasure& step : report.steps) {
    absl::StrAppend(&text, StepText(step));
  }
  return text + GainsText(SharingGains(report.steps)) +
         RatiosText(RatiosOfDepth(report.steps)) + ToText(report.updates);
}

}  // namespace delink::bench
