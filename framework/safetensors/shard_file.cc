#include "framework/safetensors/shard_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"

namespace delink::safetensors {
namespace {

// What is read back of a file at a time.
constexpr int64_t kReadBack = 1 << 20;

std::string PartialPath(const std::string& path) { return path + ".partial"; }

// Room for all of a file, where the file system can make it; false on a full
// disk and the like, with errno.
bool MakeRoom(int descriptor, int64_t bytes) {
  if (bytes == 0 || ::fallocate(descriptor, 0, 0, bytes) == 0) return true;
  return errno == EOPNOTSUPP || errno == ENOSYS;
}

}  // namespace

ShardFile::~ShardFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::Status ShardFile::CheckFound() {
  DELINK_ASSIGN_OR_RETURN(const int64_t bytes, FileSize(path_));
  std::string header(plan_->header.size(), '\0');
  DELINK_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path_));
  DELINK_ASSIGN_OR_RETURN(
      const int64_t got,
      file.Read(header.data(), static_cast<int64_t>(header.size())));
  if (bytes == plan_->bytes && got == static_cast<int64_t>(header.size()) &&
      header == plan_->header) {
    return absl::OkStatus();
  }
  return absl::AlreadyExistsError(
      absl::StrCat(path_,
                   ": there is another file of this name; remove it, or choose "
                   "another folder"));
}

absl::Status ShardFile::Begin() {
  if (PathExists(path_)) {
    found_ = true;
    return CheckFound();
  }
  const std::string partial = PartialPath(path_);
  descriptor_ =
      ::open(partial.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) return FileError(errno, partial, "open for writing");
  if (!MakeRoom(descriptor_, plan_->bytes)) {
    return FileError(errno, partial,
                     absl::StrCat("make room for ", plan_->bytes, " bytes"));
  }
  return absl::OkStatus();
}

void ShardFile::Remove() {
  if (descriptor_ >= 0) ::unlink(PartialPath(path_).c_str());
}

absl::Status ShardFile::WriteAt(int64_t begin, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), begin);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      return FileError(wrote < 0 ? errno : ENOSPC, PartialPath(path_), "write");
    }
    bytes.remove_prefix(static_cast<size_t>(wrote));
    begin += wrote;
  }
  return absl::OkStatus();
}

absl::Status ShardFile::Write(int64_t begin, std::string_view bytes) {
  DELINK_RETURN_IF_ERROR(WriteAt(begin, bytes));
  {
    const MutexLock lock(mutex_);
    const int64_t end = begin + static_cast<int64_t>(bytes.size());
    const auto next = ahead_.lower_bound(begin);
    DELINK_CHECK(begin >= digested_ &&
                 (next == ahead_.end() || next->first >= end) &&
                 (next == ahead_.begin() || std::prev(next)->second <= begin))
        << path_ << ": bytes " << begin << " to " << end << " written twice";
    if (digesting_ || begin != digested_) {
      Note(begin, end);
      return absl::OkStatus();
    }
    digesting_ = true;
    // Nobody else writes here, and nobody looks here until it is taken.
    digested_ = end;
  }
  return TakeDigest(bytes);
}

void ShardFile::Note(int64_t begin, int64_t end) {
  const auto next = ahead_.find(end);
  if (next != ahead_.end()) {
    end = next->second;
    ahead_.erase(next);
  }
  const auto after = ahead_.lower_bound(begin);
  if (after != ahead_.begin() && std::prev(after)->second == begin) {
    std::prev(after)->second = end;
  } else {
    ahead_[begin] = end;
  }
}

absl::Status ShardFile::TakeDigest(std::string_view bytes) {
  digest_.Update(bytes);
  while (true) {
    behind_.Done(descriptor_, Digested());
    int64_t begin = 0, end = 0;
    {
      const MutexLock lock(mutex_);
      const auto next = ahead_.begin();
      if (next == ahead_.end() || next->first != digested_) {
        digesting_ = false;
        if (digested_ != plan_->bytes) return absl::OkStatus();
        break;
      }
      begin = next->first;
      end = next->second;
      digested_ = end;
      ahead_.erase(next);
    }
    DELINK_RETURN_IF_ERROR(ReadBack(begin, end));
  }
  return End();
}

int64_t ShardFile::Digested() {
  const MutexLock lock(mutex_);
  return digested_;
}

absl::Status ShardFile::ReadBack(int64_t begin, int64_t end) {
  std::string some(static_cast<size_t>(std::min(kReadBack, end - begin)), '\0');
  while (begin < end) {
    const auto want = std::min(some.size(), static_cast<size_t>(end - begin));
    const ssize_t got = ::pread(descriptor_, some.data(), want, begin);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return FileError(got < 0 ? errno : EIO, PartialPath(path_), "read back");
    }
    digest_.Update(some.data(), static_cast<size_t>(got));
    begin += got;
  }
  return absl::OkStatus();
}

absl::Status ShardFile::End() {
  int error = ::fsync(descriptor_) == 0 ? 0 : errno;
  if (::close(std::exchange(descriptor_, -1)) != 0 && error == 0) error = errno;
  if (error != 0) return FileError(error, PartialPath(path_), "write");
  return Rename(PartialPath(path_), path_);
}

absl::StatusOr<std::string> ShardFile::Digest() {
  if (found_) return Sha256File(path_);
  const MutexLock lock(mutex_);
  DELINK_CHECK(digested_ == plan_->bytes && !digesting_)
      << path_ << ": written up to " << digested_ << " of " << plan_->bytes;
  return digest_.Hex();
}

}  // namespace delink::safetensors
