// Files: whole reads and writes that report every failure as a Status naming
// the path, what failed and how to mend it.
//
// A short write or a full disk is ResourceExhausted; a missing file is
// NotFound. Nothing here is atomic unless it says so. A file that must survive
// a crash is written under a temporary name, synced and renamed, and then its
// folder is synced.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace delink {

// The Status of a failed system call: `error` is its errno, `action` what was
// being done ("write", "open for reading").
absl::Status FileError(int error, std::string_view path,
                       std::string_view action);

absl::StatusOr<std::string> ReadFile(const std::string& path);

// Creates or replaces `path` and syncs it. After a failure its contents are
// undefined.
absl::Status WriteFile(const std::string& path, std::string_view bytes);

// As WriteFile, but `path` holds either its old bytes or all of the new ones,
// even after a crash.
absl::Status WriteFileAtomically(const std::string& path,
                                 std::string_view bytes);

absl::Status SyncFile(const std::string& path);
absl::Status SyncDirectory(const std::string& path);

// Renames a file or folder within one file system, atomically, and syncs the
// folder of `to`. An existing file at `to` is replaced; an existing folder only
// if it is empty.
absl::Status Rename(const std::string& from, const std::string& to);

// Removes a file, a link or a whole folder; a missing path is no error.
absl::Status RemoveAll(const std::string& path);

// Creates a folder and its parents; existing ones are no error.
absl::Status MakeDirectories(const std::string& path);

// An error if `path` is a link, folder, device or pipe, which may lead
// elsewhere or have no end.
absl::Status CheckRegularFile(const std::string& path);

bool PathExists(const std::string& path);
bool IsDirectory(const std::string& path);
absl::StatusOr<int64_t> FileSize(const std::string& path);

// The names in a folder (files and folders, not recursive), sorted.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

// "a/b", whatever slashes `a` ends in.
std::string JoinPath(std::string_view a, std::string_view b);

// The folder of a path ("." for a bare name).
std::string ParentPath(const std::string& path);

// A file being written front to back. Not thread-safe. Move-only; destroying it
// without Close leaves what has been written.
class OutputFile {
 public:
  static absl::StatusOr<OutputFile> Create(const std::string& path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  absl::Status Write(std::string_view bytes);

  // Syncs and closes; reports every error that write(2) had deferred.
  absl::Status Close();

 private:
  OutputFile(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_ = -1;
};

// A file being read front to back. Not thread-safe. Move-only.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& path);

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  // Fills `buffer` with up to `size` bytes and returns how many; less than
  // `size` only at the end of the file.
  absl::StatusOr<int64_t> Read(char* buffer, int64_t size);

 private:
  InputFile(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace delink
