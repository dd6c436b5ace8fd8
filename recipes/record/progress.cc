#include "recipes/record/progress.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/printable.h"
#include "recipes/record/run_event.h"

namespace delink {
namespace {

// A value above the peak means that the peak was measured too low.
std::string PeakText(double fraction) {
  if (fraction <= 0) return "";
  if (fraction > 1) return "over 100% of peak";
  return absl::StrFormat("%.0f%% of peak", 100 * fraction);
}

}  // namespace

std::string FormatCount(double count) {
  const char* const units[] = {"",   " k", " M", " G", " T",
                               " P", " E", " Z", " Y"};
  int unit = 0;
  while (std::abs(count) >= 999.5 && unit < 8) {
    count /= 1000;
    ++unit;
  }
  const double size = std::abs(count);
  const int decimals = unit == 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f%s", decimals, count, units[unit]);
}

std::string FormatFlops(double flops) {
  const std::string count = FormatCount(flops);
  return absl::StrCat(count, count.find(' ') == count.npos ? " " : "", "FLOP");
}

std::string FormatSeconds(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  if (s < 60) return absl::StrCat(s, " s");
  if (s < 3600) return absl::StrFormat("%d min %02d s", s / 60, s % 60);
  return absl::StrFormat("%d h %02d min", s / 3600, s % 3600 / 60);
}

std::string Format(const StepDone& step, int width) {
  const Speed& speed = step.speed;
  const double left =
      speed.mean_seconds * static_cast<double>(step.steps - step.at.step);
  std::string text = absl::StrFormat("step %d/%d", step.at.step, step.steps);
  const std::string parts[] = {
      absl::StrFormat("loss %.4f", step.loss),
      FormatSeconds(left) + " left",
      FormatCount(speed.mean_tokens_per_s) + " tokens/s",
      Printable(step.at.stage),
      PeakText(speed.mean_peak_fraction),
      absl::StrFormat("lr %.3g", step.lr),
      absl::StrFormat("grad norm %.3g", step.grad_norm),
      FormatBytes(step.memory)};
  const auto room = static_cast<size_t>(std::max(width, 0));
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    if (text.size() + 2 + part.size() > room) break;
    absl::StrAppend(&text, "  ", part);
  }
  return text.substr(0, room);
}

std::string FormatLive(const StepDone& step, int width) {
  constexpr int kCells = 10;
  constexpr int kBar = kCells + 9;  // "[] 100%  "
  constexpr int kLeast = 60;        // columns
  if (width < kLeast || step.steps <= 0) return Format(step, width);
  const double done = std::clamp(
      static_cast<double>(step.at.step) / static_cast<double>(step.steps), 0.0,
      1.0);
  const int filled = static_cast<int>(done * kCells);
  return absl::StrFormat(
      "[%s%s] %3d%%  %s", std::string(static_cast<size_t>(filled), '#'),
      std::string(static_cast<size_t>(kCells - filled), '.'),
      static_cast<int>(100 * done), Format(step, width - kBar));
}

int64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  int64_t size = 0, resident = 0;
  in >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t PeakResidentBytes() {
  // Not getrusage's, which includes the process that started us.
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    int64_t kibibytes = 0;
    if (line.starts_with("VmHWM:") &&
        absl::SimpleAtoi(line.substr(6, line.rfind(" kB") - 6), &kibibytes)) {
      return kibibytes * 1024;
    }
  }
  return 0;
}

}  // namespace delink
