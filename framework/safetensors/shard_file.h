// One file of a plan while it is written. Private to the writer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/digested_file.h"
#include "framework/safetensors/plan.h"

namespace delink::safetensors {

// Thread-safe once it has begun.
class ShardFile {
 public:
  ShardFile(std::string path, const Plan::File& plan)
      : path_(std::move(path)), plan_(&plan) {}

  // Takes over a file that is whole, or creates one with its full size.
  absl::Status Begin();
  // The header; the file's other bytes come by Write.
  absl::Status WriteHeader() { return Write(0, plan_->header); }
  // Bytes of the file from `begin` on.
  absl::Status Write(int64_t begin, std::string_view bytes);
  // Removes what Begin has made.
  void Remove();

  const std::string& path() const { return path_; }
  // Whether it existed already.
  bool found() const { return found_; }
  // Once it is whole: 64 digits.
  absl::StatusOr<std::string> Digest();

 private:
  absl::Status CheckFound();

  const std::string path_;
  const Plan::File* const plan_;
  bool found_ = false;
  std::unique_ptr<DigestedFile> file_;  // unless it was found
};

}  // namespace delink::safetensors
