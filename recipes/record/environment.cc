#include "recipes/record/environment.h"

#include <chrono>
#include <ctime>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace delink {

std::string UtcNow() {
  const std::time_t now =
      std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02dZ", utc.tm_year + 1900,
                         utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                         utc.tm_sec);
}

std::string ProcessorName() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    // "Model" where it is not x86; some say less.
    if (!line.starts_with("model name") && !line.starts_with("Model")) continue;
    const size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    if (value != std::string::npos) return line.substr(value);
  }
  return "unknown";
}

std::vector<std::string> CommandWords() {
  std::ifstream in("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  return words;
}

std::string BuildLine() {
  std::string line =
      absl::StrCat("delink ", DelinkVersion(), " (commit ", DelinkCommit());
  const std::vector<std::string> features = DelinkFeatures();
  if (!features.empty()) {
    absl::StrAppend(&line, "; ", absl::StrJoin(features, ", "));
  }
  return line + ")";
}

}  // namespace delink
