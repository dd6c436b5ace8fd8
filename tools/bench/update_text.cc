// Updates as a table.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "offload/rates/param_forms.h"
#include "tools/bench/bench.h"

namespace delink::bench {
namespace {

std::string TimesText(const UpdateMeasure& u, const UpdateTimes& times) {
  const auto n = static_cast<double>(u.parameters);
  const double speed = n / times.fused.median / kGiga;
  return absl::StrFormat(
      "%6.3f %6.1f %6.1f %5.0f%% %7.3f %5.2f [%4.2f, %4.2f]", speed,
      speed * u.bytes, n * u.bytes / times.memory.median / kGiga,
      100 * times.of_memory.median, n / times.three_passes.median / kGiga,
      times.ratio.median, times.ratio.low, times.ratio.high);
}

}  // namespace

std::string ToText(const std::vector<UpdateMeasure>& updates) {
  if (updates.empty()) return "";
  std::string text = absl::StrFormat(
      "\nAdamW on the host, %d parameters, bf16 gradients and weights, medians "
      "of %d in turn\nThree passes: unscale into f32, AdamW of f32, cast. "
      "Memory: moves the fused pass's bytes without computing.\nUpper line: by "
      "wall-clock time. Lower line: by processor time.\n\n"
      "%-6s %-6s %7s %5s  %s\n",
      updates.front().parameters, updates.front().wall.fused.samples, "master",
      "moments", "threads", "B/p",
      "Gp/s   GB/s memory  of it   three  ratio [quartiles]");
  for (const UpdateMeasure& u : updates) {
    absl::StrAppend(
        &text,
        absl::StrFormat("%-6s %-7s %7d %5.1f %s\n%29s%s\n",
                        offload::WordOf(u.form.master),
                        offload::WordOf(u.form.moments), u.threads, u.bytes,
                        TimesText(u, u.wall), "", TimesText(u, u.processor)));
  }
  return text;
}

}  // namespace delink::bench
