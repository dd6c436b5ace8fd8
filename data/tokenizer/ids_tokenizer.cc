#include "data/tokenizer/ids_tokenizer.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/at.h"
#include "framework/base/check.h"

namespace delink {
namespace {

constexpr int32_t kLargestVocab = 1 << 24;

}  // namespace

IdsTokenizer::IdsTokenizer(int32_t vocab, int32_t end_of_document)
    : end_of_document_(end_of_document),
      serialized_(absl::StrCat("delink tokenizer: ids ", vocab, " ",
                               end_of_document, "\n")) {
  DELINK_CHECK(0 <= end_of_document && end_of_document < vocab);
  for (int32_t id = 0; id < vocab; ++id) {
    numbers_.push_back(id == end_of_document ? "" : absl::StrCat(" ", id));
  }
}

std::unique_ptr<Tokenizer> IdsTokenizer::Load(std::string_view bytes) {
  const std::vector<std::string> words =
      absl::StrSplit(absl::string_view(bytes.data(), bytes.size()),
                     absl::ByAnyChar(" \n"), absl::SkipEmpty());
  int32_t vocab = 0, end = 0;
  if (words.size() != 5 || words[0] != "delink" || words[1] != "tokenizer:" ||
      words[2] != "ids" || !absl::SimpleAtoi(words[3], &vocab) ||
      !absl::SimpleAtoi(words[4], &end) || end < 0 || end >= vocab ||
      vocab > kLargestVocab) {
    return nullptr;
  }
  return std::make_unique<IdsTokenizer>(vocab, end);
}

absl::Status IdsTokenizer::Encode(std::string_view text,
                                  std::vector<int32_t>* ids) const {
  for (const absl::string_view word :
       absl::StrSplit(absl::string_view(text.data(), text.size()),
                      absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty())) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(word, &id) || id < 0 || id >= vocab_size() ||
        id == end_of_document_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", word, "' is no token: this corpus has only ids, from 0 to ",
          vocab_size() - 1, " except ", end_of_document_,
          "; write them as numbers separated by spaces"));
    }
    ids->push_back(id);
  }
  return absl::OkStatus();
}

std::string_view IdsTokenizer::TokenBytes(int32_t id) const {
  return At(numbers_, id);
}

}  // namespace delink
