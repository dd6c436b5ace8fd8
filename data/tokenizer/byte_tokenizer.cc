#include "data/tokenizer/byte_tokenizer.h"

#include "absl/status/status.h"
#include "framework/base/check.h"

namespace delink {

ByteTokenizer::ByteTokenizer() : serialized_(kSerialized) {
  for (int i = 0; i < 256; ++i) bytes_ += static_cast<char>(i);
}

absl::Status ByteTokenizer::Encode(std::string_view text,
                                   std::vector<int32_t>* ids) const {
  for (const char c : text) ids->push_back(static_cast<unsigned char>(c));
  return absl::OkStatus();
}

std::string_view ByteTokenizer::TokenBytes(int32_t id) const {
  DELINK_CHECK(0 <= id && id < vocab_size()) << id;
  if (id == end_of_document()) return "";
  return std::string_view(bytes_).substr(static_cast<size_t>(id), 1);
}

}  // namespace delink
