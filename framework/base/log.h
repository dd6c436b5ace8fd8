// The log: lines for people, to standard error and, once a run has a folder, to
// its log.txt. The sink is the one piece of process-wide state in the project.
//
//   DELINK_LOG(kInfo) << "resuming at step " << step;
//
// Lines from ranks other than 0 carry their rank; control characters are
// escaped (framework/base/printable.h). Thread-safe; each line is written
// whole. Lines that cannot be written, as to a closed pipe, are lost.
#pragma once

#include <sstream>
#include <string>
#include <string_view>

namespace delink {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// The rank named in log lines and failed checks (0 until set).
void SetLogRank(int rank);
int LogRank();

// Lines below `level` are dropped (kInfo until set).
void SetLogLevel(LogLevel level);

// Also appends every line to `path`; an empty path closes the file. Returns
// false when the file cannot be opened.
bool SetLogFile(const std::string& path);

// Called before each line, so that a live status line on the terminal can clear
// itself; nullptr for none.
void SetLogTerminalHook(void (*hook)());

void LogLine(LogLevel level, std::string_view text);
// The same, but standard error gets `shown` instead of `text`.
void LogLine(LogLevel level, std::string_view text, std::string_view shown);

namespace base {
class LogMessage {
 public:
  explicit LogMessage(LogLevel level) : level_(level) {}
  ~LogMessage() { LogLine(level_, stream_.str()); }
  LogMessage(const LogMessage&) = delete;
  LogMessage& operator=(const LogMessage&) = delete;
  std::ostream& stream() { return stream_; }

 private:
  LogLevel level_;
  std::ostringstream stream_;
};
}  // namespace base

}  // namespace delink

#define DELINK_LOG(level) \
  ::delink::base::LogMessage(::delink::LogLevel::level).stream()
