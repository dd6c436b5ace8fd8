// The digest of a corpus: over its tokens as they are stored, the starts of its
// documents and its tokenizer. It does not depend on the sharding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "framework/base/sha256.h"

namespace delink {

class CorpusDigest {
 public:
  // Front to back. All tokens of a corpus have the same type.
  void AddTokens(std::span<const uint16_t> tokens);
  void AddTokens(std::span<const uint32_t> tokens);
  void AddDocuments(std::span<const int64_t> starts);

  // Must be the last call.
  std::string Hex(std::string_view tokenizer);

 private:
  Sha256 tokens_;
  Sha256 documents_;
};

}  // namespace delink
