#include "data/corpus/byte_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr int64_t kStoredBuffer = 256 << 10;

// The format by the ending of a name: "gzip", "zstd" or nothing.
std::string_view FormatByName(std::string_view name) {
  if (name.ends_with(".gz")) return "gzip";
  if (name.ends_with(".zst")) return "zstd";
  return "";
}

}  // namespace

absl::StatusOr<ByteSource> ByteSource::Open(const std::string& path,
                                            const std::string& name) {
  DELINK_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  ByteSource source(name, std::move(file));
  source.stored_buffer_.resize(kStoredBuffer);
  DELINK_RETURN_IF_ERROR(source.Refill());
  source.decompressor_ = MakeDecompressor(source.pending_);
  const std::string_view promised = FormatByName(name);
  const std::string_view kind =
      source.decompressor_ ? source.decompressor_->kind() : "";
  if (!promised.empty() && kind != promised) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": byte 0: its name promises ", std::string(promised),
        " data, but it does not begin like such data; rename the file, or get "
        "it again"));
  }
  return source;
}

absl::Status ByteSource::Refill() {
  DELINK_ASSIGN_OR_RETURN(const int64_t got,
                          file_.Read(stored_buffer_.data(), kStoredBuffer));
  pending_ = {stored_buffer_.data(), static_cast<size_t>(got)};
  stored_ += got;
  at_end_ = got < kStoredBuffer;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ByteSource::Read(char* buffer, int64_t size) {
  if (decompressor_ != nullptr) return Decompress(buffer, size);
  int64_t done = 0;
  while (done < size) {
    if (pending_.empty()) {
      if (at_end_) break;
      DELINK_RETURN_IF_ERROR(Refill());
      continue;
    }
    const size_t part =
        std::min(pending_.size(), static_cast<size_t>(size - done));
    std::memcpy(buffer + done, pending_.data(), part);
    pending_.remove_prefix(part);
    done += static_cast<int64_t>(part);
  }
  text_ += done;
  return done;
}

absl::StatusOr<int64_t> ByteSource::Decompress(char* buffer, int64_t size) {
  int64_t done = 0;
  while (done < size) {
    if (pending_.empty() && !at_end_) DELINK_RETURN_IF_ERROR(Refill());
    const Decompressor::Step step = decompressor_->Run(
        pending_, {buffer + done, static_cast<size_t>(size - done)});
    pending_.remove_prefix(step.consumed);
    done += static_cast<int64_t>(step.produced);
    text_ += static_cast<int64_t>(step.produced);
    if (!step.error.empty()) return DamageError(step);
    if (step.consumed > 0 || step.produced > 0) continue;
    if (!pending_.empty() || (at_end_ && !step.whole)) return DamageError(step);
    if (at_end_) break;
  }
  return done;
}

absl::Status ByteSource::DamageError(const Decompressor::Step& step) const {
  const int64_t at = stored_ - static_cast<int64_t>(pending_.size());
  const std::string kind = decompressor_->kind();
  return absl::DataLossError(absl::StrCat(
      name_, ": byte ", text_, " of the text: ",
      step.error.empty()
          ? absl::StrCat("the file is cut short: its ", kind,
                         " data are incomplete where it ends, at byte ", at)
          : absl::StrCat("the ", kind, " data are damaged (", step.error,
                         ") at about byte ", at, " of the file"),
      "; get the file again (", kind, " -t tests it), or leave it out"));
}

}  // namespace delink
