// The folder of a run: recipe.toml, metrics.jsonl, log.txt,
// events.out.tfevents.*, checkpoints/, ranks/, diagnosis/, lock.
// Rank 0 writes; every function here is for rank 0 alone unless it says so.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"
#include "parallel/watch/folder_lock.h"

namespace delink {

class RunFolder {
 public:
  enum class Mode {
    kFresh,      // refuse a folder that holds a run
    kOverwrite,  // remove the run that is there
    kResume,     // go on; what is there stays
  };
  // Comes before anything of the folder is read or written: the folder is this
  // run's while the lock is held. One where a run is at work is refused.
  static absl::StatusOr<std::unique_ptr<FolderLock>> Take(
      const std::string& path);
  // Makes the folder, which is taken, as `mode` says.
  static absl::Status Prepare(const std::string& path, Mode mode);
  // Whether a run is there.
  static bool HoldsRun(const std::string& path);

  static std::string Checkpoints(const std::string& path);
  static std::string Log(const std::string& path);
  static std::string Recipe(const std::string& path);
  static std::string Metrics(const std::string& path);
  static std::string Ranks(const std::string& path);  // while it runs
  static std::string Diagnosis(const std::string& path);
};

// metrics.jsonl: one JSON object a line, written as it happens. Numbers read
// back bit for bit; what is not finite is null.
class Metrics {
 public:
  // Opens for appending after dropping the rows whose step is past `step`, a
  // switch after `step` itself (the checkpoint is the one before it), and a
  // last line that a crash cut short.
  static absl::StatusOr<Metrics> Open(const std::string& path, int64_t step);
  Metrics(Metrics&& other) noexcept;
  Metrics& operator=(Metrics&&) = delete;
  ~Metrics();

  absl::Status Write(const nlohmann::ordered_json& row);

 private:
  Metrics(std::string path, std::FILE* file)
      : path_(std::move(path)), file_(file) {}
  std::string path_;
  std::FILE* file_;
};

}  // namespace delink
