#include "framework/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

namespace fs = std::filesystem;

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
      return absl::StatusCode::kResourceExhausted;
    case EEXIST:
    case ENOTEMPTY:
      return absl::StatusCode::kAlreadyExists;
    case EISDIR:
    case ENOTDIR:
    case ENAMETOOLONG:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

const char* RemedyOf(int error) {
  switch (error) {
    case ENOENT:
      return "; check the path";
    case EACCES:
    case EPERM:
      return "; check the permissions of the path and of its folders";
    case EROFS:
      return "; choose a path on a writable file system";
    case ENOSPC:
    case EDQUOT:
      return "; free space there, or choose a path on another disk, and run "
             "again";
    case EFBIG:
      return "; raise the limit of a file's size (ulimit -f)";
    case EMFILE:
    case ENFILE:
      return "; raise the limit of open files (ulimit -n)";
    case EIO:
      return "; the disk may be failing: see the system's log";
    default:
      return "";
  }
}

absl::StatusOr<int> OpenDescriptor(const std::string& path, int flags,
                                   std::string_view action) {
  int descriptor;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) return FileError(errno, path, action);
  return descriptor;
}

absl::Status Sync(const std::string& path, int flags) {
  DELINK_ASSIGN_OR_RETURN(const int descriptor,
                          OpenDescriptor(path, O_RDONLY | flags, "open"));
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  // Some network file systems cannot sync a folder and say so this way.
  if (error == 0 || (error == EINVAL && flags != 0)) return absl::OkStatus();
  return FileError(error, path, "sync");
}

}  // namespace

absl::Status FileError(int error, std::string_view path,
                       std::string_view action) {
  return absl::Status(
      CodeOf(error),
      absl::StrCat(std::string(path), ": cannot ", std::string(action), ": ",
                   std::strerror(error), RemedyOf(error)));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  std::string bytes;
  const absl::StatusOr<int64_t> expected = FileSize(path);
  // One byte more, so that a file of the expected size ends in the first round;
  // files in /proc claim to be empty.
  size_t room = expected.ok() ? static_cast<size_t>(*expected) + 1 : 1;
  room = std::max<size_t>(room, 4096);
  while (true) {
    const size_t old = bytes.size();
    bytes.resize(old + room);
    DELINK_ASSIGN_OR_RETURN(
        const int64_t got,
        file.Read(bytes.data() + old, static_cast<int64_t>(room)));
    bytes.resize(old + static_cast<size_t>(got));
    if (static_cast<size_t>(got) < room) return bytes;
  }
}

absl::Status WriteFile(const std::string& path, std::string_view bytes) {
  DELINK_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  DELINK_RETURN_IF_ERROR(file.Write(bytes));
  return file.Close();
}

absl::Status WriteFileAtomically(const std::string& path,
                                 std::string_view bytes) {
  const std::string temporary =
      absl::StrCat(path, ".tmp.", static_cast<int64_t>(::getpid()));
  absl::Status status = WriteFile(temporary, bytes);
  if (status.ok()) status = Rename(temporary, path);
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

absl::Status SyncFile(const std::string& path) { return Sync(path, 0); }

absl::Status SyncDirectory(const std::string& path) {
  return Sync(path, O_DIRECTORY);
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return FileError(errno, from, absl::StrCat("rename to ", to));
  }
  return SyncDirectory(ParentPath(to));
}

absl::Status RemoveAll(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return FileError(error.value(), path, "remove");
  return absl::OkStatus();
}

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return FileError(error.value(), path, "create folder");
  if (!IsDirectory(path)) return FileError(ENOTDIR, path, "create folder");
  return absl::OkStatus();
}

absl::Status CheckRegularFile(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return FileError(errno, path, "open");
  if (S_ISREG(info.st_mode)) return absl::OkStatus();
  const char* const kind = S_ISLNK(info.st_mode)   ? "a link"
                           : S_ISDIR(info.st_mode) ? "a folder"
                                                   : "a device or pipe";
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": is ", kind, ", not a file; put the file itself in its place"));
}

bool PathExists(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

absl::StatusOr<int64_t> FileSize(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    return FileError(errno, path, "read the size");
  }
  return static_cast<int64_t>(info.st_size);
}

absl::StatusOr<std::vector<std::string>> ListDirectory(
    const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator it(path, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return FileError(error.value(), path, "list folder");
  std::sort(names.begin(), names.end());
  return names;
}

std::string JoinPath(std::string_view a, std::string_view b) {
  std::string path(a);
  if (!path.empty() && path.back() != '/') path += '/';
  path += b;
  return path;
}

std::string ParentPath(const std::string& path) {
  fs::path trimmed(path);
  if (!trimmed.has_filename()) trimmed = trimmed.parent_path();
  const std::string parent = trimmed.parent_path().string();
  return parent.empty() ? "." : parent;
}

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(
      const int descriptor,
      OpenDescriptor(path, O_WRONLY | O_CREAT | O_TRUNC, "open for writing"));
  return OutputFile(path, descriptor);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::Status OutputFile::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(descriptor_, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return FileError(errno, path_, "write");
    if (wrote == 0) return FileError(ENOSPC, path_, "write");
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Close() {
  int error = ::fsync(descriptor_) == 0 ? 0 : errno;
  // Pipes and devices cannot be synced, and need not be.
  if (error == EINVAL || error == EROFS) error = 0;
  if (::close(std::exchange(descriptor_, -1)) != 0 && error == 0) {
    error = errno;
  }
  if (error != 0) return FileError(error, path_, "write");
  return absl::OkStatus();
}

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const int descriptor,
                          OpenDescriptor(path, O_RDONLY, "open for reading"));
  return InputFile(path, descriptor);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::StatusOr<int64_t> InputFile::Read(char* buffer, int64_t size) {
  int64_t done = 0;
  while (done < size) {
    const ssize_t got =
        ::read(descriptor_, buffer + done, static_cast<size_t>(size - done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(errno, path_, "read");
    if (got == 0) break;
    done += got;
  }
  return done;
}

}  // namespace delink
