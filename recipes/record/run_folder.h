// The folder of a run: recipe.toml, metrics.jsonl, log.txt,
// events.out.tfevents.*, checkpoints/, ranks/, diagnosis/, lock. Only rank 0
// writes, and only rank 0 calls these functions unless noted.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/watch/folder_lock.h"

namespace delink {

class RunFolder {
 public:
  enum class Mode {
    kFresh,      // refuse a folder that holds a run
    kOverwrite,  // remove the existing run
    kResume,     // continue; existing files stay
  };
  // Locks the folder. Call it before anything of the folder is read or written.
  // An error if another run still works in it.
  static absl::StatusOr<std::unique_ptr<FolderLock>> Take(
      const std::string& path);
  // Prepares the folder, which is locked, as `mode` says.
  static absl::Status Prepare(const std::string& path, Mode mode);
  // Whether the folder holds a run.
  static bool HoldsRun(const std::string& path);

  static std::string Checkpoints(const std::string& path);
  static std::string Log(const std::string& path);
  static std::string Recipe(const std::string& path);
  static std::string Metrics(const std::string& path);
  static std::string Ranks(const std::string& path);  // while it runs
  static std::string Diagnosis(const std::string& path);
};

}  // namespace delink
