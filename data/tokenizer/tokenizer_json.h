// A tokenizer.json of the `tokenizers` library, as far as it is byte-level BPE:
// that of GPT-2, Llama 3, Qwen and their like.
//
// What is understood of the file: model BPE over the 256 bytes, ignore_merges
// included; normalizer NFC or none; pre_tokenizer ByteLevel, Split (by a
// regular expression or a text), Digits, and a Sequence of them that ends in
// ByteLevel; added tokens, special or not. Anything else that would change
// tokens is an error that names it. truncation and padding, which are about
// single requests, are passed over; of post_processor it is kept what it puts
// in front of a text, which nothing here does.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "data/tokenizer/bpe.h"

namespace delink {

struct TokenizerSpec {
  // One cut of text into words; each cuts what the one before has left.
  struct Split {
    std::string pattern;
    bool literal = false;
    bool keep_rest = true;  // what lies between matches
  };
  struct Added {
    int32_t id = 0;
    std::string content;
    bool special = false;
    bool normalized = false;  // found in the text after the normalizer
  };

  // By id, of the model: the bytes each stands for. Ids of added tokens and
  // those that nothing has are empty.
  std::vector<std::string> tokens;
  // By id: spelt in the characters that stand for bytes, as all text is; the
  // other tokens stand for what they are called.
  std::vector<bool> in_bytes;
  std::array<int32_t, 256> byte_ids = {};
  std::vector<Bpe::Merge> merges;  // by rank
  bool ignore_merges = false;      // words that are tokens are taken whole
  bool nfc = false;
  std::vector<Split> splits;
  std::vector<Added> added;
  std::vector<std::string> in_front;  // of a text, as tokens are called
};

// Whether bytes look like JSON at all: no other tokenizer begins so.
inline bool LooksLikeJson(std::string_view bytes) {
  return bytes.substr(0, 1) == "{";
}

// InvalidArgument, beginning with `name`.
absl::StatusOr<TokenizerSpec> ParseTokenizerJson(std::string_view bytes,
                                                 const std::string& name);

// The characters that stand for bytes in the file's vocabulary.
std::string BytesToText(std::string_view bytes);

}  // namespace delink
