#include "data/import/token_reader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr int64_t kPieceTokens = 32 << 10;

// Reads exactly `size` bytes.
absl::Status ReadAll(InputFile& file, const std::string& path, char* buffer,
                     int64_t size) {
  DELINK_ASSIGN_OR_RETURN(const int64_t got, file.Read(buffer, size));
  if (got == size) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(
      path,
      ": became shorter while it was read; import it again once nothing writes "
      "to it"));
}

}  // namespace

// Empty stretches are documents too, without tokens.
absl::StatusOr<bool> TokenReader::Refill() {
  while (layout_ < layouts_.size() &&
         stretch_ == layouts_[layout_].stretches.size()) {
    ++layout_;
    stretch_ = 0;
    file_.reset();
  }
  if (layout_ == layouts_.size()) return false;
  DELINK_RETURN_IF_ERROR(OpenStretch());
  const TokenLayout& layout = layouts_[layout_];
  const TokenStretch& stretch = layout.stretches[stretch_];
  const int64_t count = std::min(kPieceTokens, stretch.count - at_);
  std::string bytes(static_cast<size_t>(count * ByteSize(layout.type)), '\0');
  const int64_t size = static_cast<int64_t>(bytes.size());
  DELINK_RETURN_IF_ERROR(ReadAll(*file_, layout.path, bytes.data(), size));
  position_ += size;
  stored_ += size;
  at_ += count;
  values_.clear();
  next_ = 0;
  Widen(layout.type, bytes, &values_);
  stretch_ends_ = at_ == stretch.count;
  return true;
}

// Opens the file if needed, and skips to the start of the stretch.
absl::Status TokenReader::OpenStretch() {
  const TokenLayout& layout = layouts_[layout_];
  if (!file_.has_value()) {
    DELINK_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(layout.path));
    file_.emplace(std::move(file));
    position_ = 0;
  }
  if (at_ > 0) return absl::OkStatus();
  std::string bytes(size_t{64} << 10, '\0');
  while (position_ < layout.stretches[stretch_].offset) {
    const int64_t size =
        std::min(static_cast<int64_t>(bytes.size()),
                 layout.stretches[stretch_].offset - position_);
    DELINK_RETURN_IF_ERROR(ReadAll(*file_, layout.path, bytes.data(), size));
    position_ += size;
  }
  return absl::OkStatus();
}

absl::Status TokenReader::Check(int64_t id) const {
  if (0 <= id && id < options_.vocab) return absl::OkStatus();
  const TokenLayout& layout = layouts_[layout_];
  const int64_t end =
      layout.stretches[stretch_].offset + at_ * ByteSize(layout.type);
  const int64_t after = static_cast<int64_t>(values_.size() - next_);
  return absl::InvalidArgumentError(absl::StrCat(
      layout.path, ": token ", id, " at byte ",
      end - after * ByteSize(layout.type), " is beyond the vocabulary of ",
      options_.vocab,
      "; give the --tokenizer or the --vocab that the file was made with, or "
      "check --dtype"));
}

absl::StatusOr<TokenRun> TokenReader::Next() {
  while (true) {
    if (next_ == values_.size()) {
      if (EndStretch()) return TokenRun{.ends = true};
      DELINK_ASSIGN_OR_RETURN(const bool more, Refill());
      if (!more) return TokenRun();
      continue;
    }
    TokenRun run;
    while (next_ < values_.size() && !run.ends) {
      const int64_t id = values_[next_];
      DELINK_RETURN_IF_ERROR(Check(id));
      run.ends = id == options_.end_of_document;
      if (!run.ends) run.ids.push_back(static_cast<int32_t>(id));
      ++next_;
    }
    if (run.ids.empty() && !inside_) {
      ++empty_;
      continue;
    }
    run.begins = !inside_;
    inside_ = !run.ends;
    if (EndStretch()) run.ends = true;
    return run;
  }
}

bool TokenReader::EndStretch() {
  if (next_ < values_.size() || !stretch_ends_) return false;
  stretch_ends_ = false;
  at_ = 0;
  ++stretch_;
  return std::exchange(inside_, false);
}

}  // namespace delink
