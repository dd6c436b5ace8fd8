// The digest of a corpus: of its tokens as they are stored, of where its
// documents start, and of its tokenizer; the same however it is sharded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "framework/base/sha256.h"

namespace delink {

class CorpusDigest {
 public:
  // Front to back; of a corpus tokens are all of one of the two types.
  void AddTokens(std::span<const uint16_t> tokens);
  void AddTokens(std::span<const uint32_t> tokens);
  void AddDocuments(std::span<const int64_t> starts);

  // The object is spent.
  std::string Hex(std::string_view tokenizer);

 private:
  Sha256 tokens_;
  Sha256 documents_;
};

}  // namespace delink
