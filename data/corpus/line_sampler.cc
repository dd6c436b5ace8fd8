#include "data/corpus/line_sampler.h"

#include <algorithm>
#include <utility>

#include "data/tokenizer/utf8.h"

namespace delink {
namespace {

constexpr size_t kLongestLine = 4096;

int64_t TotalBytes(const std::vector<TextPart>& parts) {
  int64_t total = 0;
  for (const TextPart& part : parts) total += part.bytes;
  return total;
}

}  // namespace

LineSampler::LineSampler(std::vector<TextPart> parts, int64_t sample_bytes,
                         uint64_t seed, std::function<void(int64_t)> advanced)
    : parts_(std::move(parts)),
      key_(Fold(KeyFromSeed(seed), "tokenizer sample")),
      advanced_(std::move(advanced)) {
  keep_ = static_cast<double>(sample_bytes) /
          static_cast<double>(std::max<int64_t>(TotalBytes(parts_), 1));
}

bool LineSampler::FillPiece() {
  while (true) {
    if (!reader_.has_value()) {
      if (part_ == parts_.size()) return false;
      absl::StatusOr<TextReader> reader = TextReader::Open(parts_[part_].path);
      if (!reader.ok()) {
        status_ = reader.status();
        return false;
      }
      reader_.emplace(*std::move(reader));
      left_ = parts_[part_].bytes;
    }
    absl::StatusOr<std::string> piece = reader_->Next();
    if (!piece.ok()) {
      status_ = piece.status();
      return false;
    }
    if (piece->empty() || left_ == 0) {
      reader_.reset();
      ++part_;
      continue;
    }
    piece_ = *std::move(piece);
    if (static_cast<int64_t>(piece_.size()) > left_) {
      piece_.resize(CharacterBoundary(piece_, static_cast<size_t>(left_)));
      left_ = 0;
    } else {
      left_ -= static_cast<int64_t>(piece_.size());
    }
    at_ = 0;
    read_ += static_cast<int64_t>(piece_.size());
    advanced_(read_);
    if (!piece_.empty()) return true;
  }
}

bool LineSampler::NextLine(std::string* line) {
  if (at_ == piece_.size() && !FillPiece()) return false;
  const std::string_view rest = std::string_view(piece_).substr(at_);
  const size_t newline = std::min(rest.find('\n'), rest.size());
  const size_t length =
      CharacterBoundary(rest, std::min(newline, kLongestLine));
  *line = rest.substr(0, length);
  at_ += length + (length == newline && newline < rest.size() ? 1 : 0);
  return true;
}

bool LineSampler::Next(std::string* line) {
  while (status_.ok() && NextLine(line)) {
    const auto words = Philox(key_, line_number_++, 0);
    // SentencePiece ends a line at NUL.
    if (!line->empty() && Uniform(words[0]) < keep_ &&
        line->find('\0') == std::string::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace delink
