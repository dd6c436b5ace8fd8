// The tokenizer that needs no training: id i < 256 is byte i, and 256 is the
// end of a document.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace delink {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::string_view kSerialized = "delink tokenizer: bytes\n";

  ByteTokenizer();

  const char* kind() const override { return "bytes"; }
  int32_t vocab_size() const override { return 257; }
  int32_t end_of_document() const override { return 256; }
  using Tokenizer::Encode;
  absl::Status Encode(std::string_view text,
                      std::vector<int32_t>* ids) const override;
  std::string_view TokenBytes(int32_t id) const override;
  const std::string& Serialize() const override { return serialized_; }

 private:
  std::string bytes_;  // all 256, in order
  std::string serialized_;
};

}  // namespace delink
