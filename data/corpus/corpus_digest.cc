#include "data/corpus/corpus_digest.h"

#include "absl/strings/str_cat.h"

namespace delink {

void CorpusDigest::AddTokens(std::span<const uint16_t> tokens) {
  tokens_.Update(tokens.data(), tokens.size_bytes());
}

void CorpusDigest::AddTokens(std::span<const uint32_t> tokens) {
  tokens_.Update(tokens.data(), tokens.size_bytes());
}

void CorpusDigest::AddDocuments(std::span<const int64_t> starts) {
  documents_.Update(starts.data(), starts.size_bytes());
}

std::string CorpusDigest::Hex(std::string_view tokenizer) {
  return Sha256Hex(
      absl::StrCat(tokens_.Hex(), documents_.Hex(), Sha256Hex(tokenizer)));
}

}  // namespace delink
