#include "framework/safetensors/shard_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"

namespace delink::safetensors {
namespace {

std::string PartialPath(const std::string& path) { return path + ".partial"; }

// Allocates all of a file if the file system can; false, with errno, on a full
// disk and the like.
bool MakeRoom(int descriptor, int64_t bytes) {
  if (bytes == 0 || ::fallocate(descriptor, 0, 0, bytes) == 0) return true;
  return errno == EOPNOTSUPP || errno == ENOSYS;
}

}  // namespace

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
  const int descriptor =
      ::open(partial.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return FileError(errno, partial, "open for writing");
  file_ = std::make_unique<DigestedFile>(partial, descriptor, plan_->bytes);
  if (!MakeRoom(descriptor, plan_->bytes)) {
    return FileError(errno, partial,
                     absl::StrCat("make room for ", plan_->bytes, " bytes"));
  }
  return absl::OkStatus();
}

void ShardFile::Remove() {
  if (file_ != nullptr) ::unlink(file_->path().c_str());
}

absl::Status ShardFile::Write(int64_t begin, std::string_view bytes) {
  DELINK_ASSIGN_OR_RETURN(const bool whole, file_->Write(begin, bytes));
  if (!whole) return absl::OkStatus();
  DELINK_RETURN_IF_ERROR(file_->Close());
  return Rename(file_->path(), path_);
}

absl::StatusOr<std::string> ShardFile::Digest() {
  if (found_) return Sha256File(path_);
  return file_->Digest();
}

}  // namespace delink::safetensors
