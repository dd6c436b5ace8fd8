#include "recipes/record/run_folder.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "parallel/watch/heartbeat.h"
#include "recipes/record/event_file.h"

namespace delink {

std::string RunFolder::Checkpoints(const std::string& path) {
  return JoinPath(path, "checkpoints");
}
std::string RunFolder::Log(const std::string& path) {
  return JoinPath(path, "log.txt");
}
std::string RunFolder::Recipe(const std::string& path) {
  return JoinPath(path, "recipe.toml");
}
std::string RunFolder::Metrics(const std::string& path) {
  return JoinPath(path, "metrics.jsonl");
}

std::string RunFolder::Ranks(const std::string& path) {
  return JoinPath(path, "ranks");
}

std::string RunFolder::Diagnosis(const std::string& path) {
  return JoinPath(path, "diagnosis");
}

bool RunFolder::HoldsRun(const std::string& path) {
  return PathExists(Recipe(path)) || PathExists(Metrics(path)) ||
         PathExists(Checkpoints(path));
}

namespace {

absl::Status RemoveEvents(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          ListDirectory(path));
  for (const std::string& name : names) {
    if (!name.starts_with(kEventFilePrefix)) continue;
    DELINK_RETURN_IF_ERROR(RemoveAll(JoinPath(path, name)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FolderLock>> RunFolder::Take(
    const std::string& path) {
  if (PathExists(path) && !IsDirectory(path)) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, ": is a file; choose another --out"));
  }
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<FolderLock> lock,
                          FolderLock::Take(path));
  // Ranks may outlive their rank 0 for some seconds.
  DELINK_RETURN_IF_ERROR(CheckNobodyLives(Ranks(path)));
  return lock;
}

absl::Status RunFolder::Prepare(const std::string& path, Mode mode) {
  if (mode == Mode::kFresh && HoldsRun(path)) {
    return absl::AlreadyExistsError(
        absl::StrCat(path,
                     ": holds a run; add --resume to continue it, --overwrite "
                     "to start again, or choose another --out"));
  }
  if (mode == Mode::kOverwrite) {
    // Only what a run writes: the folder may hold a person's own files.
    for (const std::string& mine :
         {Recipe(path), Metrics(path), Log(path), Checkpoints(path),
          Ranks(path), Diagnosis(path)}) {
      DELINK_RETURN_IF_ERROR(RemoveAll(mine));
    }
    if (PathExists(path)) DELINK_RETURN_IF_ERROR(RemoveEvents(path));
  }
  return MakeDirectories(Checkpoints(path));
}

}  // namespace delink
