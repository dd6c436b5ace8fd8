#include "data/corpus/line_sampler.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "data/tokenizer/utf8.h"

namespace delink {
namespace {

constexpr size_t kLongestLine = 4096;

}  // namespace

LineSampler::LineSampler(DocumentReader& reader, const DocumentScan& scan,
                         int64_t sample_bytes, uint64_t seed,
                         std::function<void(int64_t)> advanced)
    : reader_(reader),
      scan_(scan),
      key_(Fold(KeyFromSeed(seed), "tokenizer sample")),
      advanced_(std::move(advanced)) {
  keep_ = static_cast<double>(sample_bytes) /
          static_cast<double>(std::max<int64_t>(scan.training_bytes, 1));
}

bool LineSampler::FillPiece() {
  while (true) {
    absl::StatusOr<TextPiece> piece = reader_.Next();
    if (!piece.ok()) {
      status_ = piece.status();
      return false;
    }
    if (piece->text.empty()) return false;
    if (piece->begins) {
      // The inputs have grown. Encoding them will report it.
      if (document_ == scan_.documents.size()) return false;
      left_ = scan_.documents[document_++].training;
    }
    if (left_ == 0) continue;
    piece_ = std::move(piece->text);
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
