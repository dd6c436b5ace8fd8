#include "data/commands/progress_line.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/commands/sides.h"

namespace delink {
namespace {

constexpr int kBar = 24;

}  // namespace

void ProgressLine::operator()(const CorpusProgress& p) {
  if (phase_ != p.phase) {
    EndPhase();
    phase_ = p.phase;
    start_ = Clock::now();
  }
  text_ = Describe(p);
  if (!terminal_) return;
  live_ << "\r" << text_ << "\x1b[K" << std::flush;
}

void ProgressLine::EndPhase() {
  if (phase_.empty()) return;
  live_ << (terminal_ ? "\r" : "") << text_ << (terminal_ ? "\x1b[K" : "")
        << "\n"
        << std::flush;
  phase_.clear();
}

std::string ProgressLine::Describe(const CorpusProgress& p) const {
  if (p.total == 0) return absl::StrCat(p.phase, " ...");
  const double share =
      std::min(1.0, static_cast<double>(p.done) / static_cast<double>(p.total));
  const double seconds =
      std::chrono::duration<double>(Clock::now() - start_).count();
  const int filled = static_cast<int>(share * kBar);
  std::string text = absl::StrFormat(
      "%s [%s%s] %3.0f%%  %.1f of %.1f MB", p.phase,
      std::string(static_cast<size_t>(filled), '#'),
      std::string(static_cast<size_t>(kBar - filled), '.'), 100 * share,
      static_cast<double>(p.done) / 1e6, static_cast<double>(p.total) / 1e6);
  if (p.tokens > 0) absl::StrAppend(&text, "  ", Grouped(p.tokens), " tokens");
  if (seconds > 0.5 && share > 0 && share < 1) {
    absl::StrAppendFormat(&text, "  %.0f s left",
                          seconds * (1 - share) / share);
  }
  return text;
}

}  // namespace delink
