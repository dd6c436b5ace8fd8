// Parses a tokenizer.json of the `tokenizers` library with byte-level BPE, as
// GPT-2, Llama 3, Qwen and others have it.
//
// Supported are model BPE over the 256 bytes, with or without ignore_merges;
// normalizer NFC or none; pre_tokenizer ByteLevel, Split (by a regular
// expression or a text), Digits, and a Sequence of them that ends in ByteLevel;
// added tokens, special or not. Anything else that would change tokens is an
// error that names it. truncation and padding concern single requests and are
// ignored. TokenizerSpec records which tokens post_processor puts in front of a
// text, but encoding does not add them.
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
  // One step of cutting text into words; each cuts the results of the last.
  struct Split {
    std::string pattern;
    bool literal = false;
    bool keep_rest = true;  // keep what lies between matches
  };
  struct Added {
    int32_t id = 0;
    std::string content;
    bool special = false;
    bool normalized = false;  // found in the text after the normalizer
  };

  // The bytes of the model's tokens, by id. Those of added tokens and of unused
  // ids are empty.
  std::vector<std::string> tokens;
  // By id: whether the file spells the token in the characters that stand for
  // bytes, as it does all text. Other tokens stand for their names.
  std::vector<bool> in_bytes;
  std::array<int32_t, 256> byte_ids = {};
  std::vector<Bpe::Merge> merges;  // by rank
  bool ignore_merges = false;      // a word that is a token needs no merges
  bool nfc = false;
  std::vector<Split> splits;
  std::vector<Added> added;
  std::vector<std::string> in_front;  // names of the tokens before a text
};

// Whether bytes look like JSON at all: no other tokenizer begins so.
inline bool LooksLikeJson(std::string_view bytes) {
  return bytes.substr(0, 1) == "{";
}

// An error is InvalidArgument and begins with `name`.
absl::StatusOr<TokenizerSpec> ParseTokenizerJson(std::string_view bytes,
                                                 const std::string& name);

// `bytes` in the characters that stand for them in the file's vocabulary.
std::string BytesToText(std::string_view bytes);

}  // namespace delink
