#include "framework/base/digested_file.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "framework/base/file.h"
#include "framework/base/status_macros.h"

namespace delink {

DigestedFile::DigestedFile(std::string path, int descriptor, int64_t bytes)
    : path_(std::move(path)),
      descriptor_(descriptor),
      digest_(bytes, [this](int64_t begin, int64_t size, char* to) {
        return ReadAt(begin, size, to);
      }) {}

DigestedFile::~DigestedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::StatusOr<bool> DigestedFile::Write(int64_t begin,
                                         std::string_view bytes) {
  DELINK_RETURN_IF_ERROR(WriteAt(begin, bytes));
  {
    // Nobody closes the file before the digest has these bytes.
    const MutexLock lock(mutex_);
    behind_.Done(descriptor_, digest_.end());
  }
  return digest_.Take(begin, bytes);
}

absl::StatusOr<bool> DigestedFile::Keep(int64_t begin, int64_t end) {
  return digest_.Skip(begin, end);
}

absl::Status DigestedFile::Close() {
  int error = ::fsync(descriptor_) == 0 ? 0 : errno;
  if (::close(std::exchange(descriptor_, -1)) != 0 && error == 0) error = errno;
  if (error != 0) return FileError(error, path_, "write");
  return absl::OkStatus();
}

absl::Status DigestedFile::WriteAt(int64_t begin, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), begin);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      return FileError(wrote < 0 ? errno : ENOSPC, path_, "write");
    }
    bytes.remove_prefix(static_cast<size_t>(wrote));
    begin += wrote;
  }
  return absl::OkStatus();
}

absl::Status DigestedFile::ReadAt(int64_t begin, int64_t size,
                                  char* bytes) const {
  while (size > 0) {
    const ssize_t got =
        ::pread(descriptor_, bytes, static_cast<size_t>(size), begin);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return FileError(got < 0 ? errno : EIO, path_, "read back");
    bytes += got;
    begin += got;
    size -= got;
  }
  return absl::OkStatus();
}

}  // namespace delink
