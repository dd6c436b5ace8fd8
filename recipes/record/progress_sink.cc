#include <algorithm>
#include <chrono>
#include <cstdio>

#include "framework/base/log.h"
#include "recipes/record/progress.h"
#include "recipes/record/sink.h"
#include "recipes/record/terminal.h"

namespace delink {
namespace {

// Clears the live line, so that a log line does not run into it.
void ClearLine() { std::fputs("\r\033[K", stderr); }

class ProgressSink final : public Sink {
 public:
  explicit ProgressSink(int64_t every) : every_(std::max<int64_t>(every, 1)) {
    if (terminal_) SetLogTerminalHook(ClearLine);
  }
  ~ProgressSink() override {
    if (!terminal_) return;
    SetLogTerminalHook(nullptr);
    ClearLine();
  }
  ProgressSink(const ProgressSink&) = delete;
  ProgressSink& operator=(const ProgressSink&) = delete;

  absl::Status Record(const RunEvent& event) override {
    if (const auto* step = std::get_if<StepDone>(&event)) Show(*step);
    return absl::OkStatus();
  }

 private:
  void Show(const StepDone& step);

  int64_t every_;
  Terminal terminal_;
  std::chrono::steady_clock::time_point shown_;  // the live line, last
};

void ProgressSink::Show(const StepDone& step) {
  // The last column stays free: some terminals wrap when it is written.
  const int width = terminal_ ? terminal_.width() - 1 : 0;
  const int64_t number = step.at.step;
  if (number % every_ == 0 || number == 1 || number == step.steps) {
    const std::string text = Format(step);
    LogLine(LogLevel::kInfo, text, terminal_ ? Format(step, width) : text);
    shown_ = {};
    return;
  }
  // No more often than a person can read.
  constexpr auto kPause = std::chrono::milliseconds(100);
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || now - shown_ < kPause) return;
  shown_ = now;
  std::fprintf(stderr, "\r\033[K%s", FormatLive(step, width).c_str());
  std::fflush(stderr);
}

}  // namespace

std::unique_ptr<Sink> NewProgressSink(int64_t every) {
  return std::make_unique<ProgressSink>(every);
}

}  // namespace delink
