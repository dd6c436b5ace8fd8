// A byte-level BPE tokenizer from a tokenizer.json (tokenizer_json.h).
//
// The ids equal those of the `tokenizers` library without special tokens around
// the text, with one difference: text never encodes to the end-of-document
// token; other tokens spell its name. It is the first of <|endoftext|>,
// <|end_of_text|>, </s> and similar names among the special tokens. If a file
// has none of them, it gets an additional id after its last. If a folder asks
// for a begin of sequence, text never encodes to that token either
// (folder_tokenizer.h). Other special tokens are found in text and decode to
// their names. Decoding returns the text as the normalizer left it.
//
// Repeated words are looked up in a cache.
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
  // `special`: from the folder of the file; null: the file is alone.
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
  // The working memory of one thread.
  struct Worker {
    WordCache words;
    Bpe::Scratch scratch;
    SplitPattern::Matcher matcher;
  };

  // The ids that text never encodes to; -1: none.
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
  // Encode the text between added tokens; normalised text; and text that the
  // splits before `split` have cut.
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
