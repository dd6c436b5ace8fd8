// A byte-level BPE tokenizer out of a tokenizer.json (tokenizer_json.h).
//
// The ids are those that the `tokenizers` library gives without special tokens
// around the text, with one difference: the token that ends a document is not
// found in text, which is spelt by others. It is the first of <|endoftext|>,
// <|end_of_text|>, </s> and their like among the special tokens; a file with
// none of them gets an id of ours past its last. Where a folder asks for a
// begin of sequence, that is found in no text either (folder_tokenizer.h).
// Other special tokens are found in text and come back as what they are called.
// Text comes back as it was but for the normalizer.
//
// Words that come again are looked up.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/special_tokens.h"
#include "data/tokenizer/split_pattern.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_json.h"
#include "data/tokenizer/word_cache.h"

namespace delink {

class BpeTokenizer final : public Tokenizer {
 public:
  // `special`: what the folder of the file says of it; null: it is alone.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(
      std::string bytes, const std::string& name,
      const SpecialTokens* special = nullptr);

  const char* kind() const override { return "byte-level BPE"; }
  int32_t vocab_size() const override {
    return static_cast<int32_t>(token_bytes_.size());
  }
  int32_t end_of_document() const override { return end_of_document_; }
  int32_t begin_of_sequence() const override { return begin_of_sequence_; }
  int32_t SpecialToken(std::string_view name) const override;
  using Tokenizer::Encode;
  absl::Status Encode(std::string_view text,
                      std::vector<int32_t>* ids) const override;
  std::string_view TokenBytes(int32_t id) const override;
  const std::string& Serialize() const override { return serialized_; }

 private:
  struct Split {
    SplitPattern pattern;
    bool keep_rest = true;
  };
  // What one thread needs.
  struct Worker {
    WordCache words;
    Bpe::Scratch scratch;
    SplitPattern::Matcher matcher;
  };

  // The ids that no text has; -1: none.
  struct Ends {
    int32_t begin = -1;
    int32_t end = -1;
  };

  BpeTokenizer(std::string bytes, TokenizerSpec spec, std::vector<Split> splits,
               const Ends& ends);

  void TakeAdded(const std::vector<TokenizerSpec::Added>& added);
  bool InNoText(int32_t id) const {
    return id == end_of_document_ || id == begin_of_sequence_;
  }
  // Text without the tokens that are found in it as it is; then the same after
  // the normalizer; then a word of split `split` - 1.
  absl::Status EncodePart(std::string_view text, Worker& worker,
                          std::vector<int32_t>* ids) const;
  absl::Status EncodeNormalized(std::string_view text, Worker& worker,
                                std::vector<int32_t>* ids) const;
  absl::Status EncodeWords(std::string_view text, size_t split, Worker& worker,
                           std::vector<int32_t>* ids) const;
  void EncodeWord(std::string_view word, Worker& worker,
                  std::vector<int32_t>* ids) const;

  const std::string serialized_;
  std::vector<std::string> token_bytes_;  // [vocab_size]
  const int32_t begin_of_sequence_;
  int32_t end_of_document_;
  const bool nfc_;
  const std::vector<Split> splits_;
  const Bpe bpe_;
  absl::flat_hash_map<std::string, int32_t> whole_words_;
  AddedTokens added_, added_normalized_;
  absl::flat_hash_map<std::string, int32_t> special_;  // by name
  mutable IdlePool<Worker> workers_;
};

}  // namespace delink
