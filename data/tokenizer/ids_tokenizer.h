// The tokenizer of a corpus whose ids have no known text: its text is the ids
// themselves, in decimal with white space between them ("464 3290").
//
// Decoding puts a space before each number.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace delink {

class IdsTokenizer final : public Tokenizer {
 public:
  // 0 <= end_of_document < vocab.
  IdsTokenizer(int32_t vocab, int32_t end_of_document);

  // From the bytes of Serialize; null if `bytes` are something else.
  static std::unique_ptr<Tokenizer> Load(std::string_view bytes);

  const char* kind() const override { return "ids"; }
  int32_t vocab_size() const override {
    return static_cast<int32_t>(numbers_.size());
  }
  int32_t end_of_document() const override { return end_of_document_; }
  using Tokenizer::Encode;
  absl::Status Encode(std::string_view text,
                      std::vector<int32_t>* ids) const override;
  std::string_view TokenBytes(int32_t id) const override;
  const std::string& Serialize() const override { return serialized_; }

 private:
  const int32_t end_of_document_;
  std::vector<std::string> numbers_;  // [vocab_size]
  std::string serialized_;
};

}  // namespace delink
