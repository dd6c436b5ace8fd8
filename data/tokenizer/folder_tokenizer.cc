#include "data/tokenizer/folder_tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"
#include "data/tokenizer/special_tokens.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadText(
    const TokenizerFiles& files, const SpecialTokens& special,
    const std::string& name) {
  const auto json = files.find(kTokenizerJson);
  const auto model = files.find(kTokenizerModel);
  absl::Status refused;
  if (json != files.end()) {
    auto tokenizer = BpeTokenizer::Load(
        json->second, JoinPath(name, kTokenizerJson), &special);
    if (tokenizer.ok() || model == files.end()) return tokenizer;
    refused = tokenizer.status();
  }
  if (model == files.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": has neither tokenizer.json nor tokenizer.model"));
  }
  auto tokenizer = SentencePieceTokenizer::Load(
      model->second, JoinPath(name, kTokenizerModel), &special);
  if (tokenizer.ok() || refused.ok()) return tokenizer;
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(refused.message()), "\n",
                   std::string(tokenizer.status().message())));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> FolderTokenizer::Load(
    TokenizerFiles files, const std::string& name) {
  DELINK_ASSIGN_OR_RETURN(const SpecialTokens special,
                          ReadSpecialTokens(files, name));
  std::unique_ptr<FolderTokenizer> tokenizer(new FolderTokenizer());
  DELINK_ASSIGN_OR_RETURN(tokenizer->text_, LoadText(files, special, name));
  tokenizer->begin_ = special.begin;
  tokenizer->end_ = special.end;
  tokenizer->serialized_ = PackFiles(files);
  return tokenizer;
}

int32_t FolderTokenizer::prefix_token() const {
  if (begin_of_sequence() >= 0) return begin_of_sequence();
  const int32_t begin = SpecialToken(begin_);
  return begin >= 0 ? begin : end_of_document();
}

}  // namespace delink
