// A SentencePiece model (Kudo and Richardson 2018) as a Tokenizer.
//
// The model's </s> ends a document; if it has none, eos_token of its folder
// does; without either, the tokenizer gets an additional id after its last.
// SentencePiece writes a space as U+2581 and cannot tell the two apart, so the
// character U+2581 is encoded by its three bytes.
//
// If no piece of the vocabulary crosses the beginning of a word, words are
// encoded one by one, and repeated words are looked up in a cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "data/tokenizer/sentencepiece_bridge.h"
#include "data/tokenizer/special_tokens.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/word_cache.h"

namespace delink {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // `special`: from the folder of the file; null: the file is alone.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(
      std::string bytes, const std::string& name,
      const SpecialTokens* special = nullptr);
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Train(
      const TokenizerTraining& options,
      const std::function<bool(std::string*)>& next);

  const char* kind() const override { return "sentencepiece"; }
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
  SentencePieceTokenizer() = default;

  absl::Status ReadPieces(const std::string& name);
  void FindEnd(const std::string& named);
  absl::Status FindBegin(const SpecialTokens& special, const std::string& name);
  // Whether decoding returns the same text, spaces at its ends included. If so,
  // the library adds and removes no spaces, and words can be encoded alone.
  bool IsPlain() const;
  absl::Status EncodePart(std::string_view text,
                          std::vector<int32_t>* ids) const;
  absl::Status EncodeWords(std::string_view text, WordCache& cache,
                           std::vector<int32_t>* ids) const;
  // By the library.
  absl::Status EncodeWhole(std::string_view text,
                           std::vector<int32_t>* ids) const;

  std::unique_ptr<sentencepiece_bridge::Model> model_;
  std::string serialized_;
  std::vector<std::string> token_bytes_;  // [vocab_size]
  std::vector<int32_t> marker_ids_;       // U+2581 in bytes; empty: no bytes
  absl::flat_hash_map<std::string, int32_t> special_;  // by name
  int32_t begin_of_sequence_ = -1;
  int32_t end_of_document_ = 0;
  WordCuts cuts_;
  mutable IdlePool<WordCache> caches_;
};

}  // namespace delink
