#include "recipes/record/run_folder.h"

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>
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
                     ": holds a run; add --resume to go on with it, "
                     "--overwrite to start again, or choose another --out"));
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

namespace {

// Whether a row was written before the checkpoint of `step`.
bool Belongs(const nlohmann::json& row, int64_t step) {
  if (!row.is_object() || !row.contains("step") || !row["step"].is_number()) {
    return false;
  }
  const auto of = row["step"].get<int64_t>();
  return of < step || (of == step && row.value("event", "") != "delink");
}

}  // namespace

absl::StatusOr<Metrics> Metrics::Open(const std::string& path, int64_t step) {
  std::string kept;
  if (PathExists(path)) {
    DELINK_ASSIGN_OR_RETURN(const std::string old, ReadFile(path));
    size_t begin = 0;
    while (begin < old.size()) {
      const size_t end = old.find('\n', begin);
      if (end == std::string::npos) break;
      const std::string line = old.substr(begin, end - begin);
      const auto row = nlohmann::json::parse(line, nullptr, false);
      if (Belongs(row, step)) kept += line + "\n";
      begin = end + 1;
    }
  }
  DELINK_RETURN_IF_ERROR(WriteFileAtomically(path, kept));
  std::FILE* const file = std::fopen(path.c_str(), "ae");
  if (file == nullptr) return FileError(errno, path, "open");
  return Metrics(path, file);
}

Metrics::Metrics(Metrics&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, nullptr)) {}

Metrics::~Metrics() {
  if (file_ != nullptr) std::fclose(file_);
}

absl::Status Metrics::Write(const nlohmann::ordered_json& row) {
  // Paths may be no UTF-8.
  const std::string line =
      row.dump(-1, ' ', false,
               nlohmann::ordered_json::error_handler_t::replace) +
      "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() ||
      std::fflush(file_) != 0) {
    return FileError(errno, path_, "write");
  }
  return absl::OkStatus();
}

}  // namespace delink
