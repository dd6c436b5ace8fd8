#include "framework/base/random_access_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/file.h"

namespace delink {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = int64_t{2} << 20;
// Bytes of one read past the cache.
constexpr int64_t kRoom = 3 * kHugePage;

char* MakeRoom() {
  void* const room = std::aligned_alloc(kHugePage, kRoom);
  DELINK_CHECK(room != nullptr) << kRoom;
  ::madvise(room, kRoom, MADV_HUGEPAGE);
  return static_cast<char*>(room);
}

// Each thread's memory for them: allocating it for each read costs more than
// the read. It has huge pages, because a request to a disk lists each range of
// memory, a few hundred at most; with 4 KiB pages reads are three times slower.
char* Blocks() {
  thread_local const std::unique_ptr<char, decltype(&std::free)> blocks(
      MakeRoom(), std::free);
  return blocks.get();
}

}  // namespace

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
      past_cache_(other.past_cache_),
      size_(other.size_) {}

RandomAccessFile& RandomAccessFile::operator=(
    RandomAccessFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(past_cache_, other.past_cache_);
  std::swap(size_, other.size_);
  return *this;
}

RandomAccessFile::~RandomAccessFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::Status RandomAccessFile::Read(int64_t begin, int64_t size,
                                    void* bytes) const {
  char* const to = static_cast<char*>(bytes);
  if (past_cache_) return ReadBlocks(begin, size, to);
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

void RandomAccessFile::ReadPastCache() {
  past_cache_ = ::fcntl(descriptor_, F_SETFL, O_DIRECT) == 0;
}

// Reads to separate memory, because reads past the cache are whole blocks.
absl::Status RandomAccessFile::ReadBlocks(int64_t begin, int64_t size,
                                          char* to) const {
  const int64_t end = begin + size;
  char* const blocks = Blocks();
  bool plain = false;
  while (begin < end) {
    const int64_t first = begin / kPage * kPage;
    const int64_t want =
        std::min(kRoom, (end - first + kPage - 1) / kPage * kPage);
    const ssize_t got =
        ::pread(descriptor_, blocks, static_cast<size_t>(want), first);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EINVAL && !plain) {
      // The file system may have larger blocks: then read through the cache.
      ::fcntl(descriptor_, F_SETFL, 0);
      plain = true;
      continue;
    }
    if (got < 0) return FileError(errno, path_, "read");
    const int64_t there = std::min(first + got, end) - begin;
    if (there <= 0) return FileCutShort(path_, first + got, end);
    std::memcpy(to, blocks + (begin - first), static_cast<size_t>(there));
    begin += there;
    to += there;
  }
  return absl::OkStatus();
}

}  // namespace delink
