// A large file that is written in pieces, in any order and from several
// threads: digested as it is written, so that it need not be read for that, and
// gone to the disk and out of the system's cache soon after (cache.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/cache.h"
#include "framework/base/mutex.h"
#include "framework/base/running_digest.h"

namespace delink {

// Thread-safe but for Close and Digest.
class DigestedFile {
 public:
  // `descriptor`: of the file at `path`, open for reading and writing; it is
  // this object's from now on. The file is going to have `bytes` bytes, more
  // than none.
  DigestedFile(std::string path, int descriptor, int64_t bytes);
  DigestedFile(const DigestedFile&) = delete;
  DigestedFile& operator=(const DigestedFile&) = delete;
  ~DigestedFile();

  const std::string& path() const { return path_; }

  // Bytes of the file from `begin` on, each once. Returns whether all of the
  // file is written and digested by this: for one call of these two it is.
  absl::StatusOr<bool> Write(int64_t begin, std::string_view bytes);
  // Bytes that are in the file already, or shall be zeros that nobody writes.
  absl::StatusOr<bool> Keep(int64_t begin, int64_t end);

  // Syncs and closes.
  absl::Status Close();
  // Of all of it (a check). Once.
  std::string Digest() { return digest_.Hex(); }

 private:
  absl::Status WriteAt(int64_t begin, std::string_view bytes);
  absl::Status ReadAt(int64_t begin, int64_t size, char* bytes) const;

  const std::string path_;
  int descriptor_;
  RunningDigest digest_;
  Mutex mutex_;
  WriteBehind behind_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace delink
