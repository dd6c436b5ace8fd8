#include "recipes/run/progress.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/log.h"
#include "framework/step/memory.h"

namespace delink {
namespace {

// Clears the live line, so that a log line does not run into it.
void ClearLine() { std::fputs("\r\033[K", stderr); }

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

std::string Format(const ProgressLine& line) {
  std::string text = absl::StrFormat("step %d/%d  %s  loss %.4f  %s tokens/s",
                                     line.step, line.steps, line.stage,
                                     line.loss, FormatCount(line.tokens_per_s));
  if (line.peak_fraction > 0) {
    absl::StrAppend(
        &text, absl::StrFormat("  %.0f%% of peak", 100 * line.peak_fraction));
  }
  absl::StrAppend(
      &text, absl::StrFormat("  lr %.3g  grad norm %.3g  %s  %s left", line.lr,
                             line.grad_norm, FormatBytes(line.memory),
                             FormatSeconds(line.seconds_left)));
  return text;
}

Progress::Progress(int64_t every)
    : every_(std::max<int64_t>(every, 1)), terminal_(isatty(2) == 1) {
  if (terminal_) SetLogTerminalHook(ClearLine);
}

Progress::~Progress() {
  if (!terminal_) return;
  SetLogTerminalHook(nullptr);
  ClearLine();
}

void Progress::Show(const ProgressLine& line) {
  const bool plain =
      line.step % every_ == 0 || line.step == 1 || line.step == line.steps;
  if (plain) DELINK_LOG(kInfo) << Format(line);
  if (plain || !terminal_) return;
  std::fprintf(stderr, "\r\033[K%s", Format(line).c_str());
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
