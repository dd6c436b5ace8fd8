// The folder of a run: recipe.toml, metrics.jsonl, log.txt,
// events.out.tfevents.*, checkpoints/, ranks/, diagnosis/, lock.
// Rank 0 writes; every function here is for rank 0 alone unless it says so.
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

}  // namespace delink
