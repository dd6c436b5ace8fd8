#include "framework/base/random_access_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"

namespace delink {

absl::Status FileCutShort(const std::string& path, int64_t bytes,
                          int64_t wanted) {
  return absl::DataLossError(absl::StrCat(path, ": truncated to ", bytes,
                                          " bytes instead of ", wanted,
                                          "; fetch it or make it again"));
}

absl::StatusOr<RandomAccessFile> RandomAccessFile::Open(
    const std::string& path) {
  const int descriptor =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return FileError(errno, path, "open for reading");
  RandomAccessFile file(path, descriptor);
  struct stat info;
  if (::fstat(descriptor, &info) != 0) {
    return FileError(errno, path, "read the size");
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": is a folder, device or pipe; name a file in its place"));
  }
  file.size_ = info.st_size;
  return file;
}

RandomAccessFile::RandomAccessFile(RandomAccessFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

RandomAccessFile& RandomAccessFile::operator=(
    RandomAccessFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

RandomAccessFile::~RandomAccessFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::Status RandomAccessFile::Read(int64_t begin, int64_t size,
                                    void* bytes) const {
  char* const to = static_cast<char*>(bytes);
  for (int64_t done = 0; done < size;) {
    const ssize_t got = ::pread(descriptor_, to + done,
                                static_cast<size_t>(size - done), begin + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(errno, path_, "read");
    if (got == 0) return FileCutShort(path_, begin + done, begin + size);
    done += got;
  }
  return absl::OkStatus();
}

}  // namespace delink
