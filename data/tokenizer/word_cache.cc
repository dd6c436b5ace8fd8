#include "data/tokenizer/word_cache.h"

namespace delink {
namespace {

constexpr size_t kMostWords = size_t{1} << 16;

absl::string_view View(std::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace

size_t WordCuts::End(std::string_view text, size_t begin) const {
  size_t end = begin + 1;
  for (; end < text.size(); ++end) {
    const char before = text[end - 1], after = text[end];
    if (before_spaces && after == ' ' && before != ' ') break;
    if (around_newlines && (after == '\n' || before == '\n')) break;
  }
  return end;
}

WordCuts FindWordCuts(std::span<const std::string> pieces) {
  WordCuts cuts;
  bool space = false, newline = false;  // " " and "\n" are pieces
  bool space_after = false, newline_within = false;
  for (const std::string& piece : pieces) {
    space = space || piece == " ";
    newline = newline || piece == "\n";
    for (size_t i = 1; i < piece.size(); ++i) {
      if (piece[i] == ' ' && piece[i - 1] != ' ') space_after = true;
      if (piece[i] == '\n' || piece[i - 1] == '\n') newline_within = true;
    }
  }
  // Consecutive unknown characters are one token, so cuts need a known piece.
  cuts.before_spaces = space && !space_after;
  cuts.around_newlines = newline && !newline_within;
  return cuts;
}

bool WordCache::Append(std::string_view word, std::vector<int32_t>* ids) const {
  const auto found = words_.find(View(word));
  if (found == words_.end()) return false;
  const Range& range = found->second;
  ids->insert(ids->end(), ids_.begin() + static_cast<int64_t>(range.begin),
              ids_.begin() + static_cast<int64_t>(range.end));
  return true;
}

void WordCache::Add(std::string_view word, std::span<const int32_t> ids) {
  if (word.size() > kLongest) return;
  if (words_.size() == kMostWords) {
    words_.clear();
    ids_.clear();
  }
  const size_t begin = ids_.size();
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  words_.emplace(word, Range{begin, ids_.size()});
}

}  // namespace delink
