#include "tools/bench/compare.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace delink::bench {
namespace {

// Smaller differences are never a change, since clocks and other load vary.
constexpr double kLeastSpread = 0.03;
// Spread of the machine's speeds, which are the best of several.
constexpr double kMachineSpread = 0.05;

// One measurement.
struct Measured {
  double seconds = 0;
  double peak = 0;
  double spread = 0;
};
using ByName = std::vector<std::pair<std::string, Measured>>;

ByName MeasuresOf(const BenchReport& report) {
  ByName names;
  for (const MatmulPeak& peak : report.machine.matmul) {
    names.push_back(
        {absl::StrCat("machine: matmul ", ToString(peak.dtype)),
         {.seconds = 1 / peak.flops_per_s, .spread = kMachineSpread}});
  }
  names.push_back({"machine: memory, read",
                   {.seconds = 1 / report.machine.bandwidth.read,
                    .spread = kMachineSpread}});
  names.push_back({"machine: memory, triad",
                   {.seconds = 1 / report.machine.bandwidth.triad,
                    .spread = kMachineSpread}});
  for (const OpMeasure& op : report.ops) {
    names.push_back(
        {absl::StrCat(op.name, " ", op.shape, " ", ToString(op.dtype)),
         {op.seconds.median, op.peak, op.seconds.spread()}});
  }
  for (const StepMeasure& step : report.steps) {
    names.push_back({absl::StrCat("step: ", ToString(step.step)),
                     {step.seconds.median, step.peak, step.seconds.spread()}});
  }
  return names;
}

void AppendChanges(const char* title, const std::vector<const Change*>& changes,
                   std::string* text) {
  if (changes.empty()) return;
  absl::StrAppend(text, title, "\n");
  for (const Change* change : changes) {
    absl::StrAppend(text, absl::StrFormat("  %-58s x %.3f  (spread %.1f %%)\n",
                                          change->what, change->ratio,
                                          100 * change->spread));
  }
}

}  // namespace

Comparison Compare(const BenchReport& before, const BenchReport& now) {
  Comparison comparison{.same_machine =
                            SameMachine(before.machine, now.machine)};
  std::map<std::string, Measured> old;
  for (const auto& [name, measured] : MeasuresOf(before)) old[name] = measured;
  for (const auto& [name, measured] : MeasuresOf(now)) {
    const auto it = old.find(name);
    if (it == old.end()) continue;
    const Measured then = it->second;
    old.erase(it);
    const bool seconds = comparison.same_machine;
    const double a = seconds ? then.seconds : measured.peak;
    const double b = seconds ? measured.seconds : then.peak;
    // The machine's own speeds have no fraction of a peak.
    if (!(a > 0 && b > 0)) continue;
    comparison.changes.push_back(
        {.what = name,
         .ratio = b / a,
         .spread = std::max(kLeastSpread, then.spread + measured.spread)});
  }
  for (const auto& [name, measured] : old) comparison.missing.push_back(name);
  return comparison;
}

std::string ToText(const Comparison& comparison, const BenchReport& before,
                   const BenchReport& now) {
  std::string text =
      absl::StrCat("compared with ", before.time, ", ", before.version, "\n");
  if (!comparison.same_machine) {
    absl::StrAppend(
        &text, "  another machine (", before.machine.processor, ", ",
        before.machine.cores, " cores, ", before.machine.threads,
        " threads): times cannot be compared, so percents of each machine's "
        "peak are compared\n");
  }
  if (before.quick || now.quick) {
    absl::StrAppend(&text, "  a quick measurement is rough\n");
  }
  std::vector<const Change*> slower, faster;
  for (const Change& change : comparison.changes) {
    if (change.slower()) slower.push_back(&change);
    if (change.faster()) faster.push_back(&change);
  }
  AppendChanges("slower (ratio of now to then):", slower, &text);
  AppendChanges("faster:", faster, &text);
  absl::StrAppend(&text,
                  comparison.changes.size() - slower.size() - faster.size(),
                  " of ", comparison.changes.size(), " within their spread\n");
  if (!comparison.missing.empty()) {
    absl::StrAppend(
        &text, "measured then but not now: ", comparison.missing.size(), "\n");
  }
  return text;
}

}  // namespace delink::bench
