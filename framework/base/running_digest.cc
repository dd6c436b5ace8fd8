#include "framework/base/running_digest.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// Bytes that are read back at a time.
constexpr int64_t kReadBack = 1 << 20;

}  // namespace

RunningDigest::RunningDigest(int64_t bytes, ReadBack read_back,
                             int64_t most_kept)
    : bytes_(bytes), read_back_(std::move(read_back)), most_kept_(most_kept) {
  DELINK_CHECK(bytes > 0) << bytes;
}

absl::StatusOr<bool> RunningDigest::Take(int64_t begin,
                                         std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  if (size == 0) return false;
  {
    MutexLock lock(mutex_);
    CheckNew(begin, begin + size);
    while (digesting_ && kept_ + size > most_kept_) lock.Wait(taken_);
    if (digesting_ || begin != end_) {
      if (kept_ + size > most_kept_) {
        Note(begin, begin + size);
      } else {
        kept_ += size;
        ahead_[begin] = {.end = begin + size, .bytes = std::string(bytes)};
      }
      return false;
    }
    digesting_ = true;
    end_ = begin + size;
  }
  digest_.Update(bytes);
  return GoOn();
}

absl::StatusOr<bool> RunningDigest::Skip(int64_t begin, int64_t end) {
  if (begin == end) return false;
  {
    const MutexLock lock(mutex_);
    CheckNew(begin, end);
    Note(begin, end);
    if (digesting_ || begin != end_) return false;
    digesting_ = true;
  }
  return GoOn();
}

void RunningDigest::CheckNew(int64_t begin, int64_t end) const {
  const auto next = ahead_.lower_bound(begin);
  DELINK_CHECK(begin >= end_ && end <= bytes_ &&
               (next == ahead_.end() || next->first >= end) &&
               (next == ahead_.begin() || std::prev(next)->second.end <= begin))
      << "bytes " << begin << " to " << end << " of " << bytes_
      << ", twice, or too many";
}

void RunningDigest::Note(int64_t begin, int64_t end) {
  const auto next = ahead_.find(end);
  if (next != ahead_.end() && next->second.bytes.empty()) {
    end = next->second.end;
    ahead_.erase(next);
  }
  const auto after = ahead_.lower_bound(begin);
  if (after != ahead_.begin() && std::prev(after)->second.end == begin &&
      std::prev(after)->second.bytes.empty()) {
    std::prev(after)->second.end = end;
  } else {
    ahead_[begin] = {.end = end};
  }
}

absl::StatusOr<bool> RunningDigest::GoOn() {
  while (true) {
    int64_t begin = 0;
    Piece piece;
    {
      const MutexLock lock(mutex_);
      const auto next = ahead_.begin();
      if (next == ahead_.end() || next->first != end_) {
        digesting_ = false;
        taken_.notify_all();
        return end_ == bytes_;
      }
      begin = next->first;
      piece = std::move(next->second);
      ahead_.erase(next);
      end_ = piece.end;
      kept_ -= static_cast<int64_t>(piece.bytes.size());
      taken_.notify_all();
    }
    if (!piece.bytes.empty()) {
      digest_.Update(piece.bytes);
    } else if (absl::Status status = DigestBack(begin, piece.end);
               !status.ok()) {
      // There will be no digest: wake the threads that wait for it.
      const MutexLock lock(mutex_);
      digesting_ = false;
      taken_.notify_all();
      return status;
    }
  }
}

absl::Status RunningDigest::DigestBack(int64_t begin, int64_t end) {
  std::string some(static_cast<size_t>(std::min(kReadBack, end - begin)), '\0');
  while (begin < end) {
    const int64_t size = std::min(kReadBack, end - begin);
    DELINK_RETURN_IF_ERROR(read_back_(begin, size, some.data()));
    digest_.Update(some.data(), static_cast<size_t>(size));
    begin += size;
  }
  return absl::OkStatus();
}

int64_t RunningDigest::end() const {
  const MutexLock lock(mutex_);
  return end_;
}

std::string RunningDigest::Hex() {
  const MutexLock lock(mutex_);
  DELINK_CHECK(end_ == bytes_ && !digesting_)
      << "the digest is of " << end_ << " of " << bytes_ << " bytes";
  return digest_.Hex();
}

}  // namespace delink
