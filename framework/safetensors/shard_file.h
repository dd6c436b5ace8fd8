// One file of a plan while it is written. Private to the writer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/cache.h"
#include "framework/base/mutex.h"
#include "framework/base/sha256.h"
#include "framework/safetensors/plan.h"

namespace delink::safetensors {

// Thread-safe once it has begun. The digest follows what is written from the
// front: whoever writes where it stands takes it on, and on over what others
// have written behind; one at a time, beside others' writes.
class ShardFile {
 public:
  ShardFile(std::string path, const Plan::File& plan)
      : path_(std::move(path)), plan_(&plan) {}
  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;
  ~ShardFile();

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
  int64_t Digested();
  absl::Status ReadBack(int64_t begin, int64_t end);
  // Adds to what is ahead, which has none of it; neighbours become one.
  void Note(int64_t begin, int64_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status End();

  const std::string path_;
  const Plan::File* const plan_;
  int descriptor_ = -1;
  bool found_ = false;
  // Of whoever has set digesting_.
  Sha256 digest_;
  WriteBehind behind_;

  Mutex mutex_;
  bool digesting_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t digested_ ABSL_GUARDED_BY(mutex_) = 0;
  // Written beyond what is digested: begins and ends.
  std::map<int64_t, int64_t> ahead_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace delink::safetensors
