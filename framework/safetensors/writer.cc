#include "framework/safetensors/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/safetensors/folder.h"

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

// One file that is being written. Its digest follows what is written from the
// front: whoever writes where it stands takes it on, and on over what others
// have written behind; one at a time, beside others' writes.
class ShardFile {
 public:
  ShardFile(std::string path, const Plan::File& plan)
      : path_(std::move(path)), plan_(&plan) {}
  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;
  ~ShardFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  // Takes over a file that is whole, or makes room for one.
  absl::Status Begin();
  // The header; the file's other bytes come by Write.
  absl::Status WriteHeader() { return Write(0, plan_->header); }
  // Bytes of the file from `begin` on.
  absl::Status Write(int64_t begin, std::string_view bytes);
  // Removes what Begin has made.
  void Remove();

  const std::string& path() const { return path_; }
  // Whether it was there already.
  bool found() const { return found_; }
  // Once it is whole: 64 digits.
  absl::StatusOr<std::string> Digest();

 private:
  absl::Status CheckFound();
  absl::Status WriteAt(int64_t begin, std::string_view bytes);
  // Takes the digest on over `bytes`, which are next, and what follows.
  absl::Status TakeDigest(std::string_view bytes);
  absl::Status ReadBack(int64_t begin, int64_t end);
  // Adds to what is ahead, which has none of it; neighbours become one.
  void Note(int64_t begin, int64_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status End();

  const std::string path_;
  const Plan::File* const plan_;
  int descriptor_ = -1;
  bool found_ = false;
  Sha256 digest_;  // of whoever has set digesting_

  Mutex mutex_;
  bool digesting_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t digested_ ABSL_GUARDED_BY(mutex_) = 0;
  // Written beyond what is digested: begins and ends.
  std::map<int64_t, int64_t> ahead_ ABSL_GUARDED_BY(mutex_);
};

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

}  // namespace

struct Writer::State {
  std::string dir;
  Plan plan;
  std::vector<std::unique_ptr<ShardFile>> files;  // as the plan's
};

Writer::Writer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&&) noexcept = default;
Writer::~Writer() = default;

absl::StatusOr<Writer> Writer::Create(const std::string& dir, Plan plan) {
  auto state = std::make_unique<State>();
  state->dir = dir;
  state->plan = std::move(plan);
  absl::Status status;
  for (const Plan::File& file : state->plan.files) {
    state->files.push_back(
        std::make_unique<ShardFile>(JoinPath(dir, file.name), file));
    if (status.ok()) status = state->files.back()->Begin();
  }
  for (const std::unique_ptr<ShardFile>& file : state->files) {
    if (status.ok() && !file->found()) status = file->WriteHeader();
  }
  if (!status.ok()) {
    for (const std::unique_ptr<ShardFile>& file : state->files) file->Remove();
    return status;
  }
  return Writer(std::move(state));
}

const Plan& Writer::plan() const { return state_->plan; }

bool Writer::done(size_t tensor) const {
  return state_->files[At(state_->plan.places, tensor).file]->found();
}

absl::Status Writer::Write(size_t tensor, int64_t first, int64_t count,
                           const void* bytes) {
  if (count == 0) return absl::OkStatus();
  const Plan::Place& place = At(state_->plan.places, tensor);
  const int64_t size = state_->plan.ElementSize(tensor);
  DELINK_CHECK(first >= 0 && count > 0 &&
               first <= (place.end - place.begin) / size - count)
      << state_->plan.tensors[tensor].name << ": " << count << " values from "
      << first << " on";
  DELINK_CHECK(!done(tensor)) << state_->plan.tensors[tensor].name;
  return state_->files[place.file]->Write(
      place.begin + first * size,
      {static_cast<const char*>(bytes), static_cast<size_t>(count * size)});
}

absl::StatusOr<std::vector<FileSum>> Writer::Finish() {
  std::vector<FileSum> sums;
  for (size_t i = 0; i < state_->files.size(); ++i) {
    DELINK_ASSIGN_OR_RETURN(const std::string digest,
                            state_->files[i]->Digest());
    sums.push_back({.name = state_->plan.files[i].name,
                    .digest = digest,
                    .bytes = state_->plan.files[i].bytes});
  }
  const std::string& index = state_->plan.index;
  if (!index.empty()) {
    DELINK_RETURN_IF_ERROR(
        WriteFileAtomically(JoinPath(state_->dir, kIndexName), index));
    sums.push_back({.name = kIndexName,
                    .digest = Sha256Hex(index),
                    .bytes = static_cast<int64_t>(index.size())});
  }
  DELINK_RETURN_IF_ERROR(SyncDirectory(state_->dir));
  return sums;
}

}  // namespace delink::safetensors
