// The tokenizer of a folder of Hugging Face: a tokenizer.json or a
// tokenizer.model, and what the folder says of the tokens around a text.
//
// Whether something goes in front of a text is, in this order: add_bos_token of
// tokenizer_config.json; for a tokenizer.json whether its post_processor puts a
// token there; for a tokenizer.model whether tokenizer_class is Llama's or
// Gemma's, or missing. What goes there is bos_token, or what the post_processor
// names. What ends a document is eos_token where that is one of those that end
// plain text (bpe_tokenizer.h), else the first of these, else eos_token: a
// chat's turns end in other tokens than its documents.
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
  // InvalidArgument, beginning with `name`.
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

  std::unique_ptr<Tokenizer> text_;  // of the one file
  std::string begin_;                // bos_token; empty: none is named
  std::string end_;                  // eos_token; empty: none is named
  std::string serialized_;
};

}  // namespace delink
