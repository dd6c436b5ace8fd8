#include "framework/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "framework/base/mutex.h"
#include "framework/base/printable.h"

namespace delink {
namespace {

struct Sink {
  Mutex mutex;
  std::FILE* file ABSL_GUARDED_BY(mutex) = nullptr;
  std::atomic<int> rank{0};
  std::atomic<LogLevel> level{LogLevel::kInfo};
  std::atomic<void (*)()> hook{nullptr};
};

Sink& TheSink() {
  static Sink* const sink = new Sink;  // never destroyed: threads may log late
  return *sink;
}

const char* Prefix(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug: ";
    case LogLevel::kInfo:
      return "";
    case LogLevel::kWarning:
      return "warning: ";
    case LogLevel::kError:
      return "error: ";
  }
  return "";
}

}  // namespace

void SetLogRank(int rank) { TheSink().rank = rank; }
int LogRank() { return TheSink().rank; }
void SetLogLevel(LogLevel level) { TheSink().level = level; }
void SetLogTerminalHook(void (*hook)()) { TheSink().hook = hook; }

bool SetLogFile(const std::string& path) {
  Sink& sink = TheSink();
  const MutexLock lock(sink.mutex);
  if (sink.file != nullptr) std::fclose(sink.file);
  sink.file = path.empty() ? nullptr : std::fopen(path.c_str(), "ae");
  return path.empty() || sink.file != nullptr;
}

void LogLine(LogLevel level, std::string_view text) {
  LogLine(level, text, text);
}

void LogLine(LogLevel level, std::string_view text, std::string_view shown) {
  Sink& sink = TheSink();
  if (level < sink.level.load()) return;
  std::string prefix;
  const int rank = sink.rank;
  if (rank != 0) prefix = "rank " + std::to_string(rank) + ": ";
  prefix += Prefix(level);
  const auto write = [&](std::FILE* file, std::string_view what) {
    const std::string line = prefix + Printable(what) + '\n';
    std::fwrite(line.data(), 1, line.size(), file);
  };
  const MutexLock lock(sink.mutex);
  if (void (*hook)() = sink.hook.load(); hook != nullptr) hook();
  write(stderr, shown);
  if (sink.file != nullptr) {
    write(sink.file, text);
    std::fflush(sink.file);
  }
}

}  // namespace delink
