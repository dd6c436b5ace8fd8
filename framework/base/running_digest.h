// The SHA-256 of a file while it is written or read in pieces, in any order and
// from several threads. It advances from the front of the file, so that nothing
// has to be read again at the end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/mutex.h"
#include "framework/base/sha256.h"

namespace delink {

// Thread-safe. One thread at a time digests: the one whose piece is next
// digests it, and then the pieces that others have given meanwhile. An early
// piece is kept in memory, up to `most_kept` bytes in all. If it does not fit,
// its thread waits while another digests; else the piece is read back later.
class RunningDigest {
 public:
  // Bytes [begin, begin + size) of the file, once they are in it.
  using ReadBack =
      std::function<absl::Status(int64_t begin, int64_t size, char* bytes)>;

  // For a file of `bytes` bytes, at least one.
  RunningDigest(int64_t bytes, ReadBack read_back,
                int64_t most_kept = int64_t{16} << 20);

  // Takes bytes from `begin` on that are already in the file, each byte once (a
  // check). Returns whether this call completes the digest: true for exactly
  // one call of Take or Skip.
  absl::StatusOr<bool> Take(int64_t begin, std::string_view bytes);
  // The same for bytes that are only in the file, and must be read back.
  absl::StatusOr<bool> Skip(int64_t begin, int64_t end);

  // All bytes before this are digested, or are being digested.
  int64_t end() const;
  // 64 digits; the digest must be complete (a check). Call it once.
  std::string Hex();

 private:
  struct Piece {
    int64_t end = 0;
    std::string bytes = {};  // none: to be read back
  };

  // Checks that these bytes have not been given yet.
  void CheckNew(int64_t begin, int64_t end) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds a range to be read back; merges neighbours.
  void Note(int64_t begin, int64_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Digests all pieces that follow end_; returns whether the digest is whole.
  absl::StatusOr<bool> GoOn();
  absl::Status DigestBack(int64_t begin, int64_t end);

  const int64_t bytes_;
  const ReadBack read_back_;
  const int64_t most_kept_;
  // Belongs to the thread that has set digesting_.
  Sha256 digest_;

  mutable Mutex mutex_;
  std::condition_variable taken_;
  bool digesting_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t end_ ABSL_GUARDED_BY(mutex_) = 0;
  // Pieces after end_, by their begins.
  std::map<int64_t, Piece> ahead_ ABSL_GUARDED_BY(mutex_);
  int64_t kept_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of those
};

}  // namespace delink
