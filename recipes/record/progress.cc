#include "recipes/record/progress.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/step/memory.h"

namespace delink {
namespace {

// Clears the live line, so that a log line does not run into it.
void ClearLine() { std::fputs("\r\033[K", stderr); }

// More than the peak tells of the peak's measurement, not of the run.
std::string PeakText(double fraction) {
  if (fraction <= 0) return "";
  if (fraction > 1) return "over 100% of peak";
  return absl::StrFormat("%.0f%% of peak", 100 * fraction);
}

}  // namespace

std::string FormatCount(double count) {
  const char* const units[] = {"", " k", " M", " G", " T", " P", " E"};
  int unit = 0;
  while (std::abs(count) >= 999.5 && unit < 6) {
    count /= 1000;
    ++unit;
  }
  const double size = std::abs(count);
  const int decimals = unit == 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f%s", decimals, count, units[unit]);
}

std::string FormatSeconds(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  if (s < 60) return absl::StrCat(s, " s");
  if (s < 3600) return absl::StrFormat("%d min %02d s", s / 60, s % 60);
  return absl::StrFormat("%d h %02d min", s / 3600, s % 3600 / 60);
}

std::string Format(const RunStatus& status, int width) {
  std::string text = absl::StrFormat("step %d/%d", status.step, status.steps);
  const std::string parts[] = {
      absl::StrFormat("loss %.4f", status.loss),
      FormatSeconds(status.seconds_left) + " left",
      FormatCount(status.tokens_per_s) + " tokens/s",
      Printable(status.stage),
      PeakText(status.peak_fraction),
      absl::StrFormat("lr %.3g", status.lr),
      absl::StrFormat("grad norm %.3g", status.grad_norm),
      FormatBytes(status.memory)};
  const auto room = static_cast<size_t>(std::max(width, 0));
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    if (text.size() + 2 + part.size() > room) break;
    absl::StrAppend(&text, "  ", part);
  }
  return text.substr(0, room);
}

std::string FormatLive(const RunStatus& status, int width) {
  constexpr int kCells = 10;
  constexpr int kBar = kCells + 9;  // "[] 100%  "
  constexpr int kLeast = 60;        // columns
  if (width < kLeast || status.steps <= 0) return Format(status, width);
  const double done = std::clamp(
      static_cast<double>(status.step) / static_cast<double>(status.steps), 0.0,
      1.0);
  const int filled = static_cast<int>(done * kCells);
  return absl::StrFormat(
      "[%s%s] %3d%%  %s", std::string(static_cast<size_t>(filled), '#'),
      std::string(static_cast<size_t>(kCells - filled), '.'),
      static_cast<int>(100 * done), Format(status, width - kBar));
}

Progress::Progress(int64_t every) : every_(std::max<int64_t>(every, 1)) {
  if (terminal_) SetLogTerminalHook(ClearLine);
}

Progress::~Progress() {
  if (!terminal_) return;
  SetLogTerminalHook(nullptr);
  ClearLine();
}

void Progress::Show(const RunStatus& status) {
  // The last column stays free: some terminals wrap when it is written.
  const int width = terminal_ ? terminal_.width() - 1 : 0;
  if (status.step % every_ == 0 || status.step == 1 ||
      status.step == status.steps) {
    const std::string text = Format(status);
    LogLine(LogLevel::kInfo, text, terminal_ ? Format(status, width) : text);
    shown_ = {};
    return;
  }
  // As often as one can read it.
  constexpr auto kPause = std::chrono::milliseconds(100);
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || now - shown_ < kPause) return;
  shown_ = now;
  std::fprintf(stderr, "\r\033[K%s", FormatLive(status, width).c_str());
  std::fflush(stderr);
}

int64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  int64_t size = 0, resident = 0;
  in >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t PeakResidentBytes() {
  // Not getrusage's, which counts what called us too.
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
