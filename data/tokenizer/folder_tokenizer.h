// The tokenizer of a Hugging Face folder: a tokenizer.json or tokenizer.model,
// and the folder's settings for the tokens around a text.
//
// add_bos_token of tokenizer_config.json decides whether a token precedes each
// text. If it is missing, a tokenizer.json has one if its post_processor puts
// one there, and a tokenizer.model has one if tokenizer_class is Llama's or
// Gemma's, or missing. With add_bos_token or a tokenizer.model the token is
// bos_token (<s> if a tokenizer.model's folder names none), else that of the
// post_processor.
//
// The end of a document in a tokenizer.json is eos_token if that ends plain
// text (bpe_tokenizer.h), else the first token that does, else eos_token: chat
// models end turns and documents with different tokens. In a tokenizer.model it
// is the model's own end, else eos_token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"

namespace delink {

class FolderTokenizer final : public Tokenizer {
 public:
  // An error is InvalidArgument and begins with `name`.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(
      TokenizerFiles files, const std::string& name);

  const char* kind() const override { return text_->kind(); }
  int32_t vocab_size() const override { return text_->vocab_size(); }
  int32_t end_of_document() const override { return text_->end_of_document(); }
  int32_t begin_of_sequence() const override {
    return text_->begin_of_sequence();
  }
  int32_t prefix_token() const override;
  bool EndsText(int32_t id) const override {
    return id == end_of_document() || (id >= 0 && id == SpecialToken(end_));
  }
  int32_t SpecialToken(std::string_view name) const override {
    return text_->SpecialToken(name);
  }
  using Tokenizer::Encode;
  absl::Status Encode(std::string_view text,
                      std::vector<int32_t>* ids) const override {
    return text_->Encode(text, ids);
  }
  std::string_view TokenBytes(int32_t id) const override {
    return text_->TokenBytes(id);
  }
  const std::string& Serialize() const override { return serialized_; }

 private:
  FolderTokenizer() = default;

  std::unique_ptr<Tokenizer> text_;  // of the one file used
  std::string begin_;                // bos_token; empty: none is named
  std::string end_;                  // eos_token; empty: none is named
  std::string serialized_;
};

}  // namespace delink
