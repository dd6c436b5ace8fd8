// The SHA-256 of a file that comes in pieces, in any order and from several
// threads, while it is written or read: from its front, so that in the end
// nothing has to be read once more.
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

// Thread-safe. Whoever brings what is next takes the digest on, and on over
// what others have brought meanwhile, one at a time. What is brought too early
// is kept, as far as some pieces go; while another is at work who brings more
// waits for it; else it is read back.
class RunningDigest {
 public:
  // Bytes [begin, begin + size) of the file, once they are in it.
  using ReadBack =
      std::function<absl::Status(int64_t begin, int64_t size, char* bytes)>;

  // Of a file of so many bytes, which is not empty.
  RunningDigest(int64_t bytes, ReadBack read_back,
                int64_t most_kept = int64_t{16} << 20);

  // Bytes of the file from `begin` on, each once (a check), and in the file
  // already. Returns whether the digest is whole by this: for one call it is.
  absl::StatusOr<bool> Take(int64_t begin, std::string_view bytes);
  // The same of bytes that are only in the file.
  absl::StatusOr<bool> Skip(int64_t begin, int64_t end);

  // Bytes that the digest is of so far, or soon: nobody brings them any more.
  int64_t end() const;
  // Once it is whole (a check): 64 digits. Once.
  std::string Hex();

 private:
  struct Piece {
    int64_t end = 0;
    std::string bytes = {};  // none: to be read back
  };

  // Of bytes that nobody has brought.
  void CheckNew(int64_t begin, int64_t end) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds what is to be read back; neighbours become one.
  void Note(int64_t begin, int64_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Over all that is next; then whether the digest is whole.
  absl::StatusOr<bool> GoOn();
  absl::Status DigestBack(int64_t begin, int64_t end);

  const int64_t bytes_;
  const ReadBack read_back_;
  const int64_t most_kept_;
  // Of whoever has set digesting_.
  Sha256 digest_;

  mutable Mutex mutex_;
  std::condition_variable taken_;
  bool digesting_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t end_ ABSL_GUARDED_BY(mutex_) = 0;
  // Beyond it, by their begins.
  std::map<int64_t, Piece> ahead_ ABSL_GUARDED_BY(mutex_);
  int64_t kept_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of those
};

}  // namespace delink
