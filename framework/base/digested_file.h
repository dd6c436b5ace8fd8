// A large file that is written in pieces, in any order and from several
// threads. It is digested while it is written, so that it need not be read
// again, and soon goes to the disk and leaves the system's cache (cache.h).
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
  // `descriptor` of the file at `path` is open for reading and writing; this
  // object closes it. The file will have `bytes` bytes, at least one.
  DigestedFile(std::string path, int descriptor, int64_t bytes);
  DigestedFile(const DigestedFile&) = delete;
  DigestedFile& operator=(const DigestedFile&) = delete;
  ~DigestedFile();

  const std::string& path() const { return path_; }

  // Writes bytes from `begin` on, each byte of the file once. Returns whether
  // this call completes the file and its digest: true for exactly one call of
  // Write or Keep.
  absl::StatusOr<bool> Write(int64_t begin, std::string_view bytes);
  // For bytes that are in the file already, or are zeros that nobody writes.
  absl::StatusOr<bool> Keep(int64_t begin, int64_t end);

  // Syncs and closes.
  absl::Status Close();
  // The digest; the file must be complete (a check). Call it once.
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
